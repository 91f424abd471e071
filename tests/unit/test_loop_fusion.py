"""Loop-fusion legality and recomputation counts."""

from __future__ import annotations

import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.analysis.loop_fusion import evaluations, has_few_paths, is_loop_fusible, is_recomputed
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text

SIDE = "f32[8,8]{1,0}"


def times(body: str) -> dict[str, float]:
    """Instruction's name → how many of its elements are computed for the result of 8 by 8."""
    computation = Module.from_bytes(from_text(f"HloModule m\nENTRY main {{ x = {SIDE} parameter(0)\n{body} }}")).entry
    found = evaluations(computation)
    return {instruction.name: found[instruction.id] for instruction in computation.instructions}


@pytest.mark.parametrize("opcode", "dot convolution reduce reduce-window sort custom-call fusion scatter while".split())
def test_what_costs_much_stays_outside(opcode: str) -> None:
    assert not is_loop_fusible(opcode)


@pytest.mark.parametrize("opcode", "add tanh select broadcast transpose copy pad gather remainder".split())
def test_what_costs_little_may_be_inside(opcode: str) -> None:
    assert is_loop_fusible(opcode)


def test_what_is_read_through_one_index_is_computed_once() -> None:
    found = times(f"a = {SIDE} sine(x)\n b = {SIDE} add(a, a)\n c = {SIDE} multiply(b, a)\n ROOT d = {SIDE} add(c, b)")
    assert found == dict.fromkeys("xabcd", 64)


def test_what_is_read_through_two_indices_is_computed_twice() -> None:
    found = times(
        f"a = {SIDE} sine(x)\n t = {SIDE} transpose(a), dimensions={{1,0}}\n b = {SIDE} add(a, t)\n"
        f" u = {SIDE} transpose(b), dimensions={{1,0}}\n ROOT c = {SIDE} add(b, u)"
    )
    assert (found["b"], found["t"], found["a"], found["x"]) == (128, 128, 256, 256)


def test_a_product_reads_a_row_for_each_element() -> None:
    found = times(
        f"a = {SIDE} sine(x)\n ROOT d = {SIDE} dot(a, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    assert found["a"] == 8 * 64


def test_many_ways_are_counted_in_little_time() -> None:
    steps = "\n".join(
        f"t.{n} = {SIDE} transpose(y.{n}), dimensions={{1,0}}\n y.{n + 1} = {SIDE} add(y.{n}, t.{n})" for n in range(60)
    )
    text = f"HloModule m\nENTRY main {{ y.0 = {SIDE} parameter(0)\n{steps}\n ROOT r = {SIDE} sine(y.60) }}"
    computation = Module.from_bytes(from_text(text)).entry
    assert is_recomputed(computation)
    assert max(evaluations(computation).values()) > 2.0**50


@pytest.mark.parametrize("depth", range(7))
def test_few_ways_are_known_without_counting(depth: int) -> None:
    steps = "\n".join(
        f"t.{n} = {SIDE} transpose(y.{n}), dimensions={{1,0}}\n y.{n + 1} = {SIDE} add(y.{n}, t.{n})"
        for n in range(depth)
    )
    body = f"x = {SIDE} parameter(0)\n y.0 = {SIDE} sine(x)\n{steps}\n ROOT r = {SIDE} sine(y.{depth})"
    module = Module.from_bytes(from_text(f"HloModule m\nENTRY main {{ {body} }}"))
    few = has_few_paths(FlatGraph(module, module.entry).nodes[1:])
    assert few == (depth < 3)
    assert not (few and is_recomputed(module.entry))
