"""Elementwise regions of one variable: growth, exits and evaluation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.match.elementwise_region import ElementwiseRegion, grow_region
from hlo_dispatch.passes.ownership import RecordedMembership
from matching import flattened, node

F = "f32[8]{0}"
CONSTANTS = f"""
  half = f32[] constant(0.5)
  halves = {F} broadcast(half), dimensions={{}}
  one = f32[] constant(1)
  ones = {F} broadcast(one), dimensions={{}}
"""


def graph_of(body: str) -> FlatGraph:
    return flattened(f"ENTRY main {{ x = {F} parameter(0)\n y = {F} parameter(1)\n{CONSTANTS}{body} }}")


def region_of(body: str, *, taken: Iterable[str] = (), needed: Iterable[str] = ()) -> ElementwiseRegion:
    graph = graph_of(body)
    owned, in_memory = {node(graph, name) for name in taken}, {node(graph, name) for name in needed}
    return grow_region(node(graph, "x"), owned.__contains__, in_memory.__contains__)


def exits(region: ElementwiseRegion) -> list[str]:
    return [region.nodes[place].name for place in region.exits]


CHAIN = f"""
  double = {F} multiply(x, halves)
  tanh = {F} tanh(double)
  ROOT plus = {F} add(ones, tanh)
"""
# x ─┬─ logistic ─ product ─ negate
#    └──────────────┘
SWISH = f"""
  logistic = {F} logistic(x)
  product = {F} multiply(x, logistic)
  ROOT negate = {F} negate(product)
"""


# --- how far it grows, and where it may end ----------------------------------------------------------------


def test_every_step_of_a_chain_is_an_exit() -> None:
    region = region_of(CHAIN)
    assert [member.name for member in region.nodes] == exits(region) == ["double", "tanh", "plus"]


def test_no_exit_while_two_paths_are_open() -> None:
    assert exits(region_of(SWISH)) == ["product", "negate"]


def test_what_is_needed_ends_the_region_but_is_in_it() -> None:
    assert exits(region_of(CHAIN, needed=["tanh"])) == ["double", "tanh"]
    assert exits(region_of(SWISH, needed=["logistic"])) == []
    assert exits(region_of(SWISH, needed=["x"])) == []


def test_what_is_taken_is_not_in_it() -> None:
    assert exits(region_of(CHAIN, taken=["plus"])) == ["double", "tanh"]
    region = region_of(SWISH, taken=["logistic"])
    assert (region.nodes, region.exits) == ((), ())


@pytest.mark.parametrize(
    "stop",
    [
        f"stop = {F} add(tanh, y)",
        "stop = f32[4,2]{1,0} reshape(tanh)",
        "stop = f64[8]{0} convert(tanh)",
        "stop = s32[8]{0} convert(tanh)",
        "stop = f32[8,2]{1,0} broadcast(tanh), dimensions={0}",
        "stop = f32[4]{0} slice(tanh), slice={[0:4]}",
        f'stop = {F} custom-call(tanh), custom_call_target="f"',
    ],
    ids=["other tensor", "reshape", "f64", "integers", "broadcast", "slice", "custom-call"],
)
def test_what_ends_it(stop: str) -> None:
    assert exits(region_of(f"tanh = {F} tanh(x)\n ROOT {stop}")) == ["tanh"]


def test_a_change_of_layout_ends_it_and_a_bitcast_does_not() -> None:
    def ends(body: str) -> list[str]:
        graph = flattened(f"fused {{ x = f32[4,2]{{1,0}} parameter(0)\n{body} }}", "fused")
        return exits(grow_region(node(graph, "x"), lambda _: False, lambda _: False))

    moved = "tanh = f32[4,2]{1,0} tanh(x)\n ROOT moved = f32[4,2]{0,1} convert(tanh)"
    assert ends(moved.replace("fused", "ENTRY main")) == ["tanh"]
    renamed = "flat = f32[8]{0} bitcast(x)\n ROOT tanh = f32[8]{0} tanh(flat)"
    assert ends(renamed) == ["flat", "tanh"]


def test_a_comparison_is_no_exit() -> None:
    region = region_of(f"""
  positive = pred[8]{{0}} compare(x, ones), direction=GT
  ROOT chosen = {F} select(positive, halves, ones)
""")
    assert exits(region) == ["chosen"]


def test_a_long_region_gives_its_first_exits() -> None:
    chain = "".join(f"t{n + 1} = {F} tanh(t{n})\n" for n in range(20))
    region = region_of(f"t0 = {F} tanh(x)\n{chain} ROOT end = {F} negate(t20)")
    assert exits(region) == [f"t{n}" for n in range(12)]
    assert len(region.nodes) == 12


# --- its constants -----------------------------------------------------------------------------------------


def test_constants_are_listed_once() -> None:
    region = region_of(f"""
  a = {F} multiply(x, halves)
  b = {F} add(a, ones)
  ROOT c = {F} multiply(b, halves)
""")
    assert region.constants == (0.5, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f32[] constant(-1.5)", -1.5),
        ("bf16[] constant(0.797)", 0.796875),
        ("f16[] constant(0.1)", float(np.float16(0.1))),
        ("f64[] constant(1e300)", 1e300),
        ("f32[] constant(-inf)", -np.inf),
        ("pred[] constant(true)", 1.0),
        ("s32[] constant(-7)", -7.0),
        ("f32[1,1]{1,0} constant({{3}})", 3.0),
        ("f32[2]{0} constant({3, 3})", None),
        ("u8[] constant(200)", 200.0),
        ("u16[] constant(3)", None),
        ("f32[] parameter(0)", None),
    ],
)
def test_scalar_constant(text: str, value: float | None) -> None:
    assert scalar_constant(flattened(f"ENTRY main {{ ROOT c = {text} }}").root) == value


def test_arithmetic_on_constants_is_a_constant() -> None:
    graph = flattened("""
ENTRY main { two = f32[] constant(2)
  root = f32[] sqrt(two)
  many = f32[8]{0} broadcast(root), dimensions={}
  wide = bf16[8]{0} convert(many)
  two.2 = bf16[] constant(2)
  twos = bf16[8]{0} broadcast(two.2), dimensions={}
  ROOT half = bf16[8]{0} divide(twos, wide) }
""")
    assert scalar_constant(graph.root) == pytest.approx(np.sqrt(2), rel=1e-15)


def test_division_by_zero_is_a_constant_too() -> None:
    graph = flattened("ENTRY main { z = f32[] constant(0)\n one = f32[] constant(1)\n ROOT d = f32[] divide(one, z) }")
    assert scalar_constant(graph.root) == np.inf


# --- what it computes --------------------------------------------------------------------------------------


def test_structure_forgets_names_and_places() -> None:
    elsewhere = f"other = {F} tanh(y)\n" + CHAIN.replace("double", "d").replace("tanh =", "t =").replace(
        "add(ones, tanh)", "add(ones, t)"
    ).replace("tanh(double)", "tanh(d)")
    assert region_of(CHAIN).structure() == region_of(elsewhere).structure()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tanh(double)", "sine(double)"),
        ("multiply(x, halves)", "multiply(x, ones)"),
        ("multiply(x, halves)", "multiply(x, x)"),
        ("add(ones, tanh)", "add(double, tanh)"),
    ],
)
def test_another_function_has_another_structure(old: str, new: str) -> None:
    assert region_of(CHAIN).structure() != region_of(CHAIN.replace(old, new)).structure()


@pytest.mark.parametrize(
    ("body", "constant", "value"),
    [
        (
            f"n = f32[] constant(-1)\n ns = {F} broadcast(n), dimensions={{}}\n ROOT r = {F} multiply(x, OTHER)",
            "ns",
            "x",
        ),
        (
            f"e = {F} exponential(x)\n t = {F} tanh(e)\n s = {F} add(e, OTHER)\n ROOT r = {F} multiply(t, s)",
            "ones",
            "t",
        ),
    ],
    ids=["the argument", "a value inside"],
)
def test_a_constant_is_no_value(body: str, constant: str, value: str) -> None:
    """x · -1 is not x · x."""
    structures = {region_of(body.replace("OTHER", other)).structure() for other in (constant, value)}
    assert len(structures) == 2


def test_structure_has_the_comparison_and_the_types() -> None:
    def structure(direction: str, kind: str) -> tuple:
        return region_of(f"""
  narrow = {kind}[8]{{0}} convert(x)
  wide = {F} convert(narrow)
  positive = pred[8]{{0}} compare(wide, ones), direction={direction}
  ROOT chosen = {F} select(positive, wide, ones)
""").structure()

    assert len({structure("GT", "bf16"), structure("GE", "bf16"), structure("GT", "f16")}) == 3


X = np.array([-np.inf, -3.0, -0.5, -0.0, 0.0, 0.25, 1.0, 40.0, np.inf, np.nan])


@pytest.mark.parametrize(
    ("body", "function"),
    [
        (SWISH.replace("ROOT negate", "ROOT result"), lambda x: -(x / (1 + np.exp(-x)))),
        (f"ROOT r = {F} clamp(halves, x, ones)", lambda x: np.minimum(np.maximum(x, 0.5), 1)),
        (f"ROOT r = {F} round-nearest-afz(x)", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
        (f"ROOT r = {F} rsqrt(x)", lambda x: 1 / np.sqrt(x)),
        (f"ROOT r = {F} power(halves, x)", lambda x: 0.5**x),
        (f"ROOT r = {F} exponential-minus-one(x)", np.expm1),
        (
            f"c = pred[8]{{0}} compare(ones, x), direction=LE\n n = pred[8]{{0}} not(c)\n"
            f" ROOT r = {F} select(n, halves, x)",
            lambda x: np.where(~(x >= 1), 0.5, x),
        ),
        (
            f"c = pred[8]{{0}} compare(x, x), direction=NE\n ROOT r = {F} select(c, ones, x)",
            lambda x: np.where(np.isnan(x), 1.0, x),
        ),
    ],
    ids=["swish", "clamp", "round", "rsqrt", "power", "expm1", "compare and not", "is not a number"],
)
def test_evaluate(body: str, function) -> None:
    region = region_of(body)
    with np.errstate(all="ignore"):
        wanted = function(X)
    np.testing.assert_allclose(region.evaluate(X)[-1], wanted, rtol=1e-15, equal_nan=True)


def test_evaluate_gives_every_exit() -> None:
    values = region_of(CHAIN).evaluate(X)
    half = X * 0.5
    for got, wanted in zip(values, (half, np.tanh(half), 1 + np.tanh(half)), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_evaluate_does_not_round_between_the_steps() -> None:
    """What XLA rounds to bf16 there is a spelling, not the function."""
    region = region_of(f"""
  narrow = bf16[8]{{0}} convert(x)
  less = {F} reduce-precision(x), exponent_bits=8, mantissa_bits=7
  wide = {F} convert(narrow)
  ROOT sum = {F} add(wide, less)
""")
    (values,) = region.evaluate(np.array([1.001, 3.14159]))
    np.testing.assert_array_equal(values, [2.002, 6.28318])


def test_a_chain_as_long_as_a_network_is_looked_through() -> None:
    lines = [f"v{i} = {F} add(v{i - 1}, y)\n" for i in range(1, 5_000)]
    graph = graph_of(f"v0 = {F} tanh(x)\n{''.join(lines)} ROOT end = {F} negate(v4999)")
    assert scalar_constant(graph.root) is None
    assert scalar_constant(node(graph, "ones")) == 1


@pytest.mark.parametrize("taken", ["tanh", "plus", "none"])
def test_recorded_membership_records_what_a_function_is_asked(taken: str) -> None:
    graph = graph_of(CHAIN)
    owned = {node(graph, taken)} if taken != "none" else set[Node]()
    asked, recorded = [], set[Node]()

    def is_owned(value: Node) -> bool:
        asked.append(value)
        return value in owned

    def is_materialized(value: Node) -> bool:
        asked.append(value)
        return value is graph.root

    expected = grow_region(node(graph, "x"), is_owned, is_materialized)
    materialized = RecordedMembership({graph.root}, recorded)
    assert grow_region(node(graph, "x"), RecordedMembership(owned, recorded), materialized) == expected
    assert recorded == set(asked)
