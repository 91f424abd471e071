"""Every constraint accepts and refuses; every fact is what it says; reductions, products and convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest
from structures import find

from hlo_dispatch.pattern.constraints import CONSTRAINTS
from hlo_dispatch.pattern.facts import FACTS

XY = """
    x = {x} parameter(0)
    y = {y} parameter(1)
    t = {y} negate(y)
    ROOT r = {r} add(x, t)
"""
F48 = XY.format(x="f32[4,8]{1,0}", y="f32[4,8]{1,0}", r="f32[4,8]{1,0}")
F8 = XY.format(x="f32[8]{0}", y="f32[8]{0}", r="f32[8]{0}")
COLUMN = XY.format(x="f32[4,8]{0,1}", y="f32[4,8]{0,1}", r="f32[4,8]{0,1}")
FLAT = """
    x = f32[32]{0} parameter(0)
    y = f32[4,8]{1,0} parameter(1)
    n = f32[4,8]{1,0} negate(y)
    t = f32[32]{0} bitcast(n)
    ROOT r = f32[32]{0} add(x, t)
"""
SELECT = """
    x = {p}[8]{{0}} parameter(0)
    y = f32[8]{{0}} parameter(1)
    z = f32[8]{{0}} parameter(2)
    c = {p}[8]{{0}} parameter(3)
    p = pred[8]{{0}} compare(x, c), direction=LT
    ROOT r = f32[8]{{0}} select(p, y, z)
"""
CONSTANT = """
    y = f32[8]{{0}} parameter(0)
    s = f32[] constant({})
    x = f32[8]{{0}} broadcast(s), dimensions={{}}
    t = f32[8]{{0}} negate(y)
    ROOT r = f32[8]{{0}} add(x, t)
"""
TWICE = F48.replace("ROOT r =", "r =") + "u = f32[4,8]{1,0} negate(x)\n ROOT v = (f32[4,8], f32[4,8]) tuple(r, u)"
FUSED = """
    y = f32[8]{0} parameter(0)
    w = f32[8]{0} parameter(1)
    ROOT f = f32[8]{0} fusion(y, w), kind=kLoop, calls=inner
"""
# Outside a fusion everything is in memory.
INNER = """
inner {
    v = f32[8]{0} parameter(0)
    u = f32[8]{0} parameter(1)
    x = f32[8]{0} cosine(u)
    t = f32[8]{0} negate(v)
    ROOT r = f32[8]{0} add(x, t)
}
"""
DOT = """
    x = f32[4,8]{{1,0}} parameter(0)
    y = f32[{y}]{{1,0}} parameter(1)
    t = f32[{y}]{{1,0}} negate(y)
    ROOT r = f32[4,8]{{1,0}} dot(x, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{contracting}}}
"""
PLAIN, TRANSPOSED = DOT.format(y="8,8", contracting=0), DOT.format(y="8,8", contracting=1)
CONVOLUTION = """
    x = f32[2,8,8,3]{{3,2,1,0}} parameter(0)
    y = f32[3,3,3,4]{{3,2,1,0}} parameter(1)
    t = f32[3,3,3,4]{{3,2,1,0}} negate(y)
    ROOT r = f32[2,{size},{size},4]{{3,2,1,0}} convolution(x, t), window={{size=3x3{window}}}, dim_labels={labels}
"""
VALID = CONVOLUTION.format(size=6, window="", labels="b01f_01io->b01f")
SAME = CONVOLUTION.format(size=8, window=" pad=1_1x1_1", labels="b01f_01io->b01f")
BATCH_LAST = CONVOLUTION.format(size=6, window="", labels="b10f_01io->b01f")
TRANSPOSE = """
    x = f32[4,8,2]{2,1,0} parameter(0)
    y = f32[4,2,8]{2,1,0} parameter(1)
    n = f32[4,8,2]{2,1,0} negate(x)
    t = f32[4,2,8]{2,1,0} transpose(n), dimensions={0,2,1}
    ROOT r = f32[4,2,8]{2,1,0} add(t, y)
"""
BROADCAST = """
    x = f32[8,8]{1,0} parameter(0)
    y = f32[8]{0} parameter(1)
    t = f32[8,8]{1,0} broadcast(y), dimensions={1}
    ROOT r = f32[8,8]{1,0} add(x, t)
"""
SUM, ANY_WINDOW = "x + negate(y)", "convolution(x, negate(y), labels={}, window={})"
ANY_LAYOUT = ", ".join(f"{name}: {{any_layout: true}}" for name in ("x", "y", "result"))

# constraint → what is matched, where it is demanded, a module it accepts, one it refuses, what it says
CASES: dict[str, tuple[str, str, str, str, str]] = {
    "along": ("x + broadcast(y, along=last)", "", BROADCAST, BROADCAST.replace("{1}", "{0}"), "broadcast is along -1"),
    "any_layout": (SUM, ANY_LAYOUT, COLUMN, "", ""),
    "constant": (SUM, "x: {constant: true}", CONSTANT.format(3), F8, "is one number that is known"),
    "constant_between": (SUM, "x: {constant_between: [1, 4]}", CONSTANT.format(4), CONSTANT.format(4.5), "between 1.0"),
    "constant_near": (SUM, "x: {constant_near: 0.1}", CONSTANT.format(0.1), CONSTANT.format(0.11), "the constant 0.1"),
    "dimensions": (SUM, "x: {dimensions: [any, 8]}", F48, F8, "x has the dimensions any, 8"),
    "dtype": (
        "select(x < c, y, z)", "x: {dtype: [s32, s64]}, c: {dtype: s32}",
        SELECT.format(p="s32"), SELECT.format(p="f32"), "has an element type of s32",
    ),
    "in_memory": (SUM, "x: {in_memory: true}", F48, FUSED, "%x is f32[8]{0}, but x is in memory already"),
    "labels": (ANY_WINDOW.format("'b01f_01io->b01f'", "any"), "", SAME, BATCH_LAST, "labels b01f_01io->b01f"),
    "last_dimension": (SUM, "x: {last_dimension: 8}", F48, FLAT, "x has a last dimension of 8"),
    "last_dimension_at_least": (SUM, "x: {last_dimension_at_least: 9}", FLAT, F8, "of at least 9"),
    "last_dimension_multiple_of": (SUM, "x: {last_dimension_multiple_of: 16}", FLAT, F8, "a multiple of 16"),
    "permutation": (
        "transpose(negate(x), permutation=[0, 2, 1]) + y", "",
        TRANSPOSE, TRANSPOSE.replace("4,2,8", "2,8,4").replace("{0,2,1}", "{2,1,0}"), "has the permutation 0, 2, 1",
    ),
    "product": ("dot(x, negate(y), product=transposed)", "", TRANSPOSED, PLAIN, "a product of the form transposed"),
    "rank": (SUM, "x: {rank: 2}", F48, F8, "x has the rank 2"),
    "rank_at_least": (SUM, "x: {rank_at_least: 2}", F48, F8, "x has a rank of at least 2"),
    "row_major": (SUM, ANY_LAYOUT.replace("x: {", "x: {row_major: true, "), F48, COLUMN, "its last dimension fastest"),
    "same_dtype_as": (
        "select(x < c, y, z)", "x: {dtype: [f32, s32], same_dtype_as: y}, c: {dtype: [f32, s32]}",
        SELECT.format(p="f32"), SELECT.format(p="s32"), "x has the element type of y",
    ),
    "same_shape_as": (SUM, "y: {same_shape_as: x}", F48, FLAT, "y has the dimensions of x"),
    "single_use": (SUM, "x: {single_use: true}", F48, TWICE, "x is used once"),
    "size_at_least": (SUM, "x: {size_at_least: 9}", F48, F8, "x has at least 9 elements"),
    "size_at_most": (SUM, "x: {size_at_most: 8}", F8, F48, "x has at most 8 elements"),
    "window": (ANY_WINDOW.format("any", "plain"), "", VALID, SAME, "a window of the form plain"),
}  # fmt: skip


def test_every_constraint_is_tested() -> None:
    assert set(CASES) == set(CONSTRAINTS)


@pytest.mark.parametrize("name", CASES)
def test_constraint(tmp_path: Path, name: str) -> None:
    match, where, accepted, refused, said = CASES[name]
    assert len(find(tmp_path, accepted, match, where=where).matches) == 1
    if not refused:
        return
    found = find(tmp_path, refused, match, where=where, before=INNER if name == "in_memory" else "")
    assert not found.matches
    (miss,) = found.misses.values()
    assert said in miss.sentence


def test_facts(tmp_path: Path) -> None:
    wanted = {
        "bytes": ("i64", "bytes(x)", 2 * 8 * 8 * 3 * 4),
        "dims": ("array<i64>", "dims(y)", [3, 3, 3, 4]),
        "dtype": ("string", "dtype(result)", "f32"),
        "elements": ("i64", "elements(y)", 108),
        "groups": ("i64", "groups(result)", 1),
        "padding_high": ("array<i64>", "padding_high(result)", [1, 1]),
        "padding_low": ("array<i64>", "padding_low(result)", [1, 1]),
        "rank": ("i64", "rank(x)", 4),
        "size": ("i64", "size(x, -1)", 3),
        "strides": ("array<i64>", "strides(result)", [256, 32, 4, 1]),
        "window_dilation": ("array<i64>", "window_dilation(result)", [1, 1]),
        "window_strides": ("array<i64>", "window_strides(result)", [1, 1]),
    }
    assert {*wanted, "value"} == set(FACTS)
    attributes = {f"a_{name}": (kind, fact) for name, (kind, fact, _) in wanted.items()}
    literals = {
        "number": ("f32", "2"),
        "whole": ("i64", "3"),
        "text": ("string", "words"),
        "list": ("array<i64>", "[1, 2]"),
    }
    (match,) = find(
        tmp_path, SAME, "convolution(x, negate(y), labels=any, window=any)", attributes=attributes | literals
    ).matches
    assert match.attributes() == {f"a_{name}": value for name, (_, _, value) in wanted.items()} | {
        "number": 2.0, "whole": 3, "text": "words", "list": [1, 2],
    }  # fmt: skip
    assert isinstance(match.attributes()["number"], float)


def test_a_dimension_that_is_not_there_is_a_miss(tmp_path: Path) -> None:
    found = find(tmp_path, F8, SUM, attributes={"rows": ("i64", "size(x, 1)")})
    (miss,) = found.misses.values()
    assert miss.sentence == "mine: 2 of 2 operations matched; f32[8]{0} has no dimension 1"
    assert miss.arguments == ("f32[8]{0} has no dimension 1",)  # an exception would keep the graph in the memo


def test_scratch(tmp_path: Path) -> None:
    (match,) = find(tmp_path, F8, SUM, scratch="bytes(x)").matches
    assert match.scratch_bytes == 32
    (match,) = find(tmp_path, F8, SUM).matches
    assert match.scratch_bytes is None


SOFTMAX = """
    x = f32[4,8]{1,0} parameter(0)
    low = f32[] constant(-inf)
    top = f32[4]{0} reduce(x, low), dimensions={1}, to_apply=largest
    tops = f32[4,8]{1,0} broadcast(top), dimensions={0}
    s = f32[4,8]{1,0} subtract(x, tops)
    e = f32[4,8]{1,0} exponential(s)
    zero = f32[] constant(0)
    all = f32[4]{0} reduce(e, zero), dimensions={1}, to_apply=sum
    alls = f32[4,8]{1,0} broadcast(all), dimensions={0}
    ROOT r = f32[4,8]{1,0} divide(e, alls)
"""
SOFTMAX_MATCH = """\
e = exponential(x - broadcast(reduce_maximum(x, along=last), along=[0]))
e / broadcast(reduce_add(e, along=last), along=[0])"""


def test_a_broadcast_along_one_element(tmp_path: Path) -> None:
    """XLA writes a bitcast for it."""
    body = """
        x = f32[1,8]{1,0} parameter(0)
        y = f32[8]{0} parameter(1)
        t = f32[1,8]{1,0} bitcast(y)
        ROOT r = f32[1,8]{1,0} add(x, t)
    """
    (match,) = find(tmp_path, body, "x + broadcast(y, along=last)").matches
    assert [view.node.name for view in match.operands.values()] == ["x", "y"]
    assert not find(tmp_path, body, "x + broadcast(y, along=[0])").matches
    assert not find(tmp_path, F48, "x + broadcast(y, along=last)").matches


@pytest.mark.parametrize(("operand", "matches"), [("1,8", True), ("8,1", True), ("2,4", False)])
def test_an_operand_of_a_degenerate_broadcast_may_have_ones(tmp_path: Path, operand: str, matches: bool) -> None:
    """Such as the weights of one layer, sliced from a stack."""
    body = f"""
        x = f32[1,1,8]{{2,1,0}} parameter(0)
        y = f32[{operand}]{{1,0}} parameter(1)
        t = f32[1,1,8]{{2,1,0}} bitcast(y)
        ROOT r = f32[1,1,8]{{2,1,0}} add(x, t)
    """
    assert bool(find(tmp_path, body, "x + broadcast(y, along=last)").matches) == matches


@pytest.mark.parametrize(
    ("result", "operand", "dimensions", "matches"),
    [
        ("4,8", "4", "0", True),
        ("8,8", "8", "1", False),
        ("2,4,8", "2,4", "0,1", True),
        ("2,4,8", "4,8", "1,2", False),
        ("4,4,8", "4,4", "1,0", False),
        ("2,4,8", "2", "0", False),
        ("1,4,8", "4", "1", True),
        ("1,8", "1", "0", True),
        ("1,8", "", "", True),
        ("2,8", "", "", False),
    ],
)
def test_along_all_but_the_last(tmp_path: Path, result: str, operand: str, dimensions: str, matches: bool) -> None:
    """Dimensions of one element may be left out, as XLA does; no other, and their order is kept."""

    def order(sizes: str) -> str:
        return "{" + ",".join(str(number) for number in reversed(range(len(sizes.split(","))))) + "}"

    full, part = (f"f32[{sizes}]{order(sizes) if sizes else ''}" for sizes in (result, operand))
    body = f"""
        x = {full} parameter(0)
        y = {part} parameter(1)
        t = {full} broadcast(y), dimensions={{{dimensions}}}
        ROOT r = {full} add(x, t)
    """
    assert bool(find(tmp_path, body, "x + broadcast(y, along=but_last)").matches) == matches


def test_softmax(tmp_path: Path) -> None:
    (match,) = find(tmp_path, SOFTMAX, SOFTMAX_MATCH).matches
    assert [node.name for node in match.covered] == ["top", "tops", "s", "e", "all", "alls", "r"]
    assert [view.node.name for view in match.operands.values()] == ["x"]
    for wrong, said in (
        (SOFTMAX.replace("constant(0)", "constant(1)"), "%all does not start from 0"),
        (SOFTMAX.replace("to_apply=sum", "to_apply=largest"), "%all does not reduce by add"),
        (SOFTMAX.replace("subtract(x, tops)", "subtract(tops, x)"), "%x is parameter, not broadcast"),
    ):
        found = find(tmp_path, wrong, SOFTMAX_MATCH)
        assert not found.matches
        assert said in found.misses["mine"].sentence
