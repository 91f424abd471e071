"""Matches made of equal ones: the modules are those without the memo, and what differs anywhere is matched anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.match import match_memo
from hlo_dispatch.match.dependency_trace import Predicate, Trace, record
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.match_memo import MatchMemo
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.pattern import Table, load_tables
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from matching import flattened, node, serialized

GOLDEN = Path(__file__).parents[1] / "golden"
Finder = Callable[[Sequence[Predicate]], Match | Refusal]
MACHINE = Machine("AMD EPYC", frozenset(("avx2", "avx512f", "avx512dq", "avx512_bf16")), 2)
M = "f32[8,8]{1,0}"
WEIGHTS = {
    "plain": f"w# = {M} get-tuple-element(weights), index=0",
    "column-major": "w# = f32[8,8]{0,1} bitcast(w)",
    "transposed": f"w# = {M} transpose(w), dimensions={{1,0}}",
    "rounded": f"h# = bf16[8,8]{{1,0}} convert(w)\n  w# = {M} convert(h#)",
}
STEPS = {
    "none": "s# = {M} negate(d#)",
    "bias": "b# = {M} broadcast(v), dimensions={{1}}\n  s# = {M} add(d#, b#)",
    "bias of rows": "b# = {M} broadcast(v), dimensions={{0}}\n  s# = {M} add(d#, b#)",
    "residual": "s# = {M} add(d#, @)",
    "swapped": "s# = {M} subtract(@, d#)",
    "relu": "z# = f32[] constant(0)\n  y# = {M} broadcast(z#), dimensions={{}}\n  s# = {M} maximum(d#, y#)",
    "minus zero": "z# = f32[] constant(-0.0)\n  y# = {M} broadcast(z#), dimensions={{}}\n  s# = {M} maximum(d#, y#)",
    "another constant": "z# = f32[] constant(0.5)\n  y# = {M} broadcast(z#), dimensions={{}}\n"
    "  s# = {M} maximum(d#, y#)",
    "tanh": "s# = {M} tanh(d#)",
    "of the weights": "s# = {M} multiply(d#, w)",
    "another layout": "s# = f32[8,8]{{0,1}} copy(d#)\n  r# = {M} copy(s#)",
    "rounding": "s# = bf16[8,8]{{1,0}} convert(d#)\n  r# = {M} convert(s#)",
}
USERS = {"one": "", "another user": f"u# = {M} cosine(d#)\n", "of the step": f"u# = {M} cosine(s#)\n"}


def layer(number: int, weights: str, step: str, users: str, *, waits: bool, is_precise: bool) -> str:
    """A product with its weights and a step; `waits`: the step has a control dependency."""
    last = STEPS[step].format(M=M)
    if waits:
        head, _, tail = last.partition("\n")
        last = f"{head}, control-predecessors={{first}}" + (f"\n{tail}" if tail else "")
    precision = ", operand_precision={highest,highest}" if is_precise else ""
    written = (
        f"  {WEIGHTS[weights]}\n  d# = {M} dot(@, w#), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"{precision}\n  {last}\n  {USERS[users]}  x# = {M} sine({'r#' if 'r# =' in last else 's#'})\n"
    )
    previous = "x" if number == 0 else f"x_{number - 1}"
    return written.replace("@", previous).replace("#", f"_{number}")


def program(layers: Sequence[str]) -> str:
    """A program of these layers, one after the other."""
    written = "".join(layers)
    found = [f"u_{number}" for number in range(len(layers)) if f"u_{number} =" in written]
    kept = ", ".join([*found, f"x_{len(layers) - 1}"])
    types = ", ".join([M] * (len(found) + 1))
    return f"""ENTRY main {{
  x = {M} parameter(0)
  weights = ({M}) parameter(1)
  v = f32[8]{{0}} parameter(2)
  w = {M} get-tuple-element(weights), index=0
  first = {M} cosine(w)
{written}  ROOT out = ({types}) tuple({kept}) }}"""


def program_of(*layers: dict[str, Any]) -> str:
    return program([layer(number, **described) for number, described in enumerate(layers)])


def random_layers(seed: int) -> list[str]:
    """Layers of few kinds, in any order."""
    random = Random(seed)
    kinds = [
        (random.choice([*WEIGHTS]), random.choice([*STEPS]), random.choice([*USERS]), random.random() < 0.15,
         random.random() < 0.1)
        for _ in range(4)
    ]  # fmt: skip
    chosen = [random.choice(kinds) for _ in range(14)]
    return [
        layer(number, weights, step, users, waits=waits, is_precise=is_precise)
        for number, (weights, step, users, waits, is_precise) in enumerate(chosen)
    ]


@lru_cache(maxsize=1)
def table() -> Table:
    return load_tables()


def rewritten(text: str, policy: str) -> tuple[bytes | None, str]:
    """The module after the passes, and its report."""
    made, report = Pipeline(Planner.make(table(), policy, MACHINE)).run(serialized(text))
    return made, str(report.regions)


def found_anew(
    memo: MatchMemo, at: Node, predicates: Sequence[Predicate], graph: object, find: Finder, *apart: object
) -> Match | Refusal:
    """In place of the memo's own match."""
    return find(predicates)


@pytest.fixture
def recorded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_memo, "RECORDED_FROM", 0)


def followed(monkeypatch: pytest.MonkeyPatch) -> list[Trace]:
    """The traces that are followed to their ends from now on, one for each time."""
    made: list[Trace] = []
    follow = Trace.follow

    def counted(trace: Trace, at: Node, predicates: Sequence[Predicate], graph: FlatGraph) -> list[Node] | None:
        found = follow(trace, at, predicates, graph)
        made.extend([trace] if found is not None else [])
        return found

    monkeypatch.setattr(Trace, "follow", counted)
    return made


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
@pytest.mark.parametrize("policy", ["always", "heuristic"])
@pytest.mark.parametrize("seed", range(12))
def test_modules_are_those_without_the_memo(seed: int, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = program(random_layers(seed))
    made = followed(monkeypatch)
    with_memo = rewritten(text, policy)
    assert made
    monkeypatch.setattr(MatchMemo, "match", found_anew)
    assert rewritten(text, policy) == with_memo


@pytest.mark.any_processor
def test_a_module_of_unlike_layers_keeps_no_later_one_from_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(Planner.make(table(), "always", MACHINE))
    unlike = [PLAIN | {"step": step, "users": users} for step in STEPS for users in ("one", "another user")]
    pipeline.run(serialized(program_of(*unlike)))
    made = followed(monkeypatch)
    pipeline.run(serialized(program_of(*[PLAIN] * 60)))
    assert len(made) > 10


def tries(text: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each trace that is tried at the products of a program, whether it is followed to its end."""
    tried: list[bool] = []
    follow = Trace.follow

    def counted(trace: Trace, at: Node, predicates: Sequence[Predicate], graph: FlatGraph) -> list[Node] | None:
        found = follow(trace, at, predicates, graph)
        tried.append(found is not None)
        return found

    monkeypatch.setattr(Trace, "follow", counted)
    graph, memo = flattened(text), MatchMemo()
    for product in [node(graph, f"d_{number}") for number in range(text.count(" dot("))]:

        def around(_: object, product: Node = product) -> list[object]:
            users = [user for one in (product, *product.users) for user in one.users]
            return [(user.opcode, [scalar_constant(operand) for operand in user.operands]) for user in users]

        anew = around(())
        assert memo.match(product, (), graph, around, around, lambda found, _: lambda graph, nodes: found) == anew
    return tried


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
def test_layers_that_repeat_in_their_order_are_found_at_the_first_try(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [PLAIN | {"step": step} for step in ("none", "bias", "relu", "tanh", "another constant")]
    tried = tries(program_of(*kinds * 20), monkeypatch)
    assert tried.count(True) == 95
    assert tried.count(False) < 30


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
def test_unlike_layers_are_not_compared_with_each_other_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = 300
    text = program_of(*[PLAIN | {"step": "another constant"}] * layers)
    numbers = iter(range(layers))
    tried = tries(re.sub(r"constant\(0\.5\)", lambda _: f"constant({next(numbers)}.5)", text), monkeypatch)
    assert True not in tried
    assert len(tried) < 0.4 * match_memo.MOST_RECORDED * layers


def shares_trace(one: dict[str, Any], other: dict[str, Any], after: dict[str, Any] | None = None) -> bool:
    """Whether a layer's match reads what that of another one read."""
    graph = flattened(program_of(PLAIN, one, other, after or PLAIN))
    planner = Planner.make(table(), "always", MACHINE)
    matcher = planner.matcher(graph, table(), planner.finder, MACHINE)
    predicates = [frozenset[object]().__contains__, {graph.root}.__contains__] + [frozenset[object]().__contains__] * 2

    def found(asked: Sequence[Predicate]) -> Match | Refusal | None:
        return matcher.match_apart(first, asked, frozenset())

    first, second = node(graph, "d_1"), node(graph, "d_2")
    match, trace, _ = record(found, first, predicates)
    assert isinstance(match, Match)
    assert trace is not None
    assert trace.follow(first, predicates, graph) is not None
    return trace.follow(second, predicates, graph) is not None


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
def test_anchors_of_all_kinds_are_matched_as_without_the_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [hlo_text.from_text(path.read_text()) for path in sorted(GOLDEN.glob("*/*.before.hlo"))]
    pipeline = Pipeline(Planner.make(table(), "always", MACHINE))
    results = [pipeline.run(module)[0] for module in modules]
    monkeypatch.setattr(MatchMemo, "match", found_anew)
    assert [pipeline.run(module)[0] for module in modules] == results


PLAIN: dict[str, Any] = {"weights": "plain", "step": "bias", "users": "one", "waits": False, "is_precise": False}
DIFFERENT: dict[str, dict[str, Any]] = {
    **{f"weights {kind}": {"weights": kind} for kind in WEIGHTS if kind != "plain"},
    **{f"step {kind}": {"step": kind} for kind in STEPS if kind != "bias"},
    **{f"users {kind}": {"users": kind} for kind in USERS if kind != "one"},
    "a control dependency": {"step": "relu", "waits": True},
}


@pytest.mark.any_processor
@pytest.mark.parametrize("step", STEPS)
def test_equal_layers_share_a_trace(step: str) -> None:
    assert shares_trace(*[PLAIN | {"step": step}] * 3)


@pytest.mark.any_processor
@pytest.mark.parametrize("difference", DIFFERENT)
def test_what_differs_shares_none(difference: str) -> None:
    assert not shares_trace(PLAIN, PLAIN | DIFFERENT[difference])
    assert not shares_trace(PLAIN | DIFFERENT[difference], PLAIN)


@pytest.mark.any_processor
@pytest.mark.parametrize("step", ["minus zero", "another constant"])
def test_other_constants_share_none(step: str) -> None:
    assert not shares_trace(PLAIN | {"step": "relu"}, PLAIN | {"step": step})


@pytest.mark.any_processor
def test_what_another_match_owns_is_asked_of_each() -> None:
    graph = flattened(program_of(PLAIN, PLAIN, PLAIN, PLAIN))
    owned = {node(graph, "s_2")}
    predicates: list[Predicate] = [owned.__contains__, {graph.root}.__contains__]
    product = node(graph, "d_1")
    _, trace, _ = record(lambda asked: asked[0](product.users[0]), product, predicates)
    assert trace is not None
    assert trace.follow(product, predicates, graph) is not None
    assert trace.follow(node(graph, "d_2"), predicates, graph) is None


@pytest.mark.any_processor
def test_names_and_ids_make_a_trace_unusable() -> None:
    graph = flattened(program_of(PLAIN, PLAIN, PLAIN, PLAIN))
    product = node(graph, "d_1")
    readers = (lambda: product.name, lambda: product.proto.id, lambda: product.producers)
    for read in readers:
        assert record(lambda _, read=read: read(), product, [])[1] is None
    assert type(product).__name__ == "Node"
    assert record(lambda _: product.opcode, product, [])[1] is not None


ROWS = "f32[8]{0}"
REDUCTIONS = ("maximum", "minimum", "add", "multiply")


def softmax_layer(number: int, largest: str = "maximum", total: str = "add", users: str = "") -> str:
    """A softmax over the last dimension, if it reduces by the default functions, and all of its steps otherwise."""
    previous = "x" if number == 0 else f"y_{number - 1}"
    written = f"""
  m# = {ROWS} reduce(@, lowest), dimensions={{1}}, to_apply={largest}_of
  l# = {M} broadcast(m#), dimensions={{0}}
  s# = {M} subtract(@, l#)
  e# = {M} exponential(s#)
  t# = {ROWS} reduce(e#, zero), dimensions={{1}}, to_apply={total}_of
  n# = {M} broadcast(t#), dimensions={{0}}
  y# = {M} divide(e#, n#)
  {users}"""
    return written.replace("@", previous).replace("#", f"_{number}")


def softmax_program(layers: Sequence[str]) -> str:
    """A program of these layers, one after the other."""
    written = "".join(layers)
    found = [f"u_{number}" for number in range(len(layers)) if f"u_{number} =" in written]
    kept = ", ".join([*found, f"y_{len(layers) - 1}"])
    functions = "".join(
        f"{opcode}_of {{ a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] {opcode}(a, b) }}\n"
        for opcode in REDUCTIONS
    )
    return f"""{functions}ENTRY main {{
  x = {M} parameter(0)
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
{written}  ROOT out = ({", ".join([M] * (len(found) + 1))}) tuple({kept}) }}"""


UNLIKE_SOFTMAXES: dict[str, dict[str, str]] = {
    **{f"the {opcode}": {"largest": opcode} for opcode in REDUCTIONS if opcode != "maximum"},
    **{f"divided by the {opcode}": {"total": opcode} for opcode in REDUCTIONS if opcode != "add"},
    "another user": {"users": f"u# = {M} cosine(e#)\n"},
}


def compare_without_memo(text: str, monkeypatch: pytest.MonkeyPatch, region: str, count: int) -> None:
    """A program of which so many of the report's regions are equal is rewritten alike with and without the memo."""
    made = followed(monkeypatch)
    with_memo = rewritten(text, "always")
    assert len(made) > 5
    assert with_memo[1].count(region) == count
    monkeypatch.setattr(MatchMemo, "match", found_anew)
    assert rewritten(text, "always") == with_memo


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
@pytest.mark.parametrize("difference", UNLIKE_SOFTMAXES)
def test_patterns_are_matched_as_without_the_memo(difference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unlike = UNLIKE_SOFTMAXES[difference]
    text = softmax_program([softmax_layer(number, **(unlike if number % 5 == 3 else {})) for number in range(12)])
    compare_without_memo(text, monkeypatch, "formula='softmax(x)'", 10)


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
def test_attentions_are_matched_as_without_the_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(number: int) -> str:
        scores, previous = f"s_{number}_", "x" if number == 0 else f"y_{number - 1}"
        softmax = softmax_layer(number, "minimum" if number == 4 else "maximum").replace(f"y_{number} ", f"p_{number} ")
        return (
            f"  {scores} = {M} dot({previous}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n"
            f"{softmax.replace(previous + ',', scores + ',')}"
            f"y_{number} = {M} dot(p_{number}, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        )

    text = softmax_program([attention(number) for number in range(8)])
    text = text.replace("zero = ", f"w = {M} parameter(1)\n  v = {M} parameter(2)\n  zero = ")
    compare_without_memo(text, monkeypatch, "entry='attention'", 7)


@pytest.mark.any_processor
@pytest.mark.usefixtures("recorded_at_once")
def test_argmaxes_are_matched_as_without_the_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    golden = (GOLDEN / "argmax" / "f32.before.hlo").read_text()
    larger = golden[golden.index("larger {") :].partition("}\n")[0] + "}\n"
    last = larger.replace("larger {", "last {").replace("direction=LT", "direction=GT")
    both, rows = "(f32[8]{0}, s32[8]{0})", "s32[8]{0}"
    layers = "".join(
        f"""
  both_{number} = {both} reduce(x_{number}, places, lowest, first), dimensions={{1}},
    to_apply={"last" if number == 3 else "larger"}
  i_{number} = {rows} get-tuple-element(both_{number}), index=1
  f_{number} = f32[8]{{0}} convert(i_{number})
  b_{number} = {M} broadcast(f_{number}), dimensions={{0}}
  x_{number + 1} = {M} add(x_{number}, b_{number})"""
        for number in range(9)
    )
    text = f"""{larger}{last}ENTRY main {{
  x_0 = {M} parameter(0)
  places = s32[8,8]{{1,0}} iota(), iota_dimension=1
  lowest = f32[] constant(-inf)
  first = s32[] constant(0){layers}
  ROOT out = {M} sine(x_9) }}"""
    compare_without_memo(text, monkeypatch, "entry='argmax'", 8)
