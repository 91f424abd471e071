"""Complexity of the pipeline on growing programs, by counted steps, independent of the machine and its load."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from hlo_dispatch import rewrite
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor.libraries import onednn
from matching import serialized

pytestmark = pytest.mark.skipif(isinstance(onednn(), Unavailable), reason="oneDNN is not installed")

UNITS, TIMES = 24, 4
MOST = 4.6
"""So many times the steps may a program of four times the size take; twice over in squares would be 16."""
MOST_CALLS = 180
"""Calls of Python functions that one more region like all others may take to be matched: it is 172 with Python 3.11."""
F = "f32[32,32]{1,0}"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def updates(units: int) -> str:
    """An array that products read between its updates in place; these are fusions that read what others read, too."""
    inside = []
    lines = [f"x = {F} parameter(0)", f"given = {F} parameter(1)", f"kept0 = {F} copy(given)", f"h0 = {F} tanh(x)"]
    for n in range(units):
        inside.append(f"""
row{n} {{ kept = {F} parameter(0)
  x = {F} parameter(1)
  one = s32[] constant(1)
  row = f32[1,32]{{1,0}} slice(x), slice={{[0:1], [0:32]}}
  ROOT update = {F} dynamic-update-slice(kept, row, one, one) }}""")
        lines += [
            f"p{n} = {F} dot(x, kept{n}), {DOT}",
            f"kept{n + 1} = {F} fusion(kept{n}, x), kind=kLoop, calls=row{n}",
            f"q{n} = {F} dot(h{n}, kept{n + 1}), {DOT}",
            f"h{n + 1} = {F} subtract(p{n}, q{n})",
        ]
    return (
        f"{''.join(inside)}\nENTRY main {{ {chr(10).join(lines)}\n ROOT t = ({F}, {F}) tuple(kept{units}, h{units}) }}"
    )


def loops(units: int) -> str:
    """Many loops over the same weights."""
    state = f"(s32[], {F}, {F})"
    inside, outside = [], [f"h0 = {F} parameter(0)", f"w = {F} parameter(1)", "zero = s32[] constant(0)"]
    for n in range(units):
        inside.append(f"""
go{n} {{ g = {state} parameter(0)
  i = s32[] get-tuple-element(g), index=0
  most = s32[] constant(3)
  ROOT less = pred[] compare(i, most), direction=LT }}
turn{n} {{ g = {state} parameter(0)
  i = s32[] get-tuple-element(g), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  h = {F} get-tuple-element(g), index=1
  w = {F} get-tuple-element(g), index=2
  d = {F} dot(h, w), {DOT}
  e = {F} tanh(d)
  ROOT r = {state} tuple(next, e, w) }}""")
        outside += [
            f"state{n} = {state} tuple(zero, h{n}, w)",
            f"loop{n} = {state} while(state{n}), condition=go{n}, body=turn{n}",
            f"h{n + 1} = {F} get-tuple-element(loop{n}), index=1",
        ]
    return f"{''.join(inside)}\nENTRY main {{ {chr(10).join(outside)}\n ROOT t = {F} negate(h{units}) }}"


def accumulated_sums(units: int) -> str:
    """A loop that accumulates the products of the slices of many arrays."""
    stack, index = "f32[5,8,32]{2,1,0}", '"known_init_step":{"init":"0","step":"1"},"known_induction_variable":'
    state = f"(s32[], {', '.join([F] * units + [stack] * units)})"
    inside = [
        f"""go {{ g = {state} parameter(0)
  i = s32[] get-tuple-element(g), index=0
  most = s32[] constant(5)
  ROOT less = pred[] compare(i, most), direction=LT }}
turn {{ g = {state} parameter(0)
  i = s32[] get-tuple-element(g), index=0
  none = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)"""
    ]
    for n in range(units):
        inside.append(f"""  h{n} = {F} get-tuple-element(g), index={1 + n}
  x{n} = {stack} get-tuple-element(g), index={1 + units + n}
  slice{n} = f32[1,8,32]{{2,1,0}} dynamic-slice(x{n}, i, none, none), dynamic_slice_sizes={{1,8,32}}
  rows{n} = f32[8,32]{{1,0}} bitcast(slice{n})
  d{n} = {F} dot(rows{n}, rows{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  e{n} = {F} add(h{n}, d{n})""")
    sums, stacks = (", ".join(f"{name}{n}" for n in range(units)) for name in ("e", "x"))
    inside.append(f"  ROOT r = {state} tuple(next, {sums}, {stacks}) }}")
    outside = [f"h = {F} parameter(0)", "zero = s32[] constant(0)"]
    outside += [f"x{n} = {stack} parameter({1 + n})" for n in range(units)]
    outside += [f"h{n} = {F} copy(h)" for n in range(units)]
    begin = ", ".join(f"h{n}" for n in range(units))
    config = f'{{"known_trip_count":{{"n":"5"}},{index}{{"tuple_index":"0"}}}}'
    outside += [
        f"state = {state} tuple(zero, {begin}, {stacks})",
        f"loop = {state} while(state), condition=go, body=turn, backend_config={config}",
    ]
    outside += [f"t{n} = {F} get-tuple-element(loop), index={1 + n}" for n in range(units)]
    results = ", ".join(f"t{n}" for n in range(units))
    root = f"ROOT t = ({', '.join([F] * units)}) tuple({results})"
    return "\n".join([*inside, f"ENTRY main {{ {chr(10).join(outside)}", f" {root} }}"])


def branches(units: int) -> str:
    """Many choices between a product and none."""
    given = f"({F}, {F})"
    inside, outside = [], [f"h0 = {F} parameter(0)", f"w = {F} parameter(1)", "which = pred[] parameter(2)"]
    for n in range(units):
        inside.append(f"""
yes{n} {{ g = {given} parameter(0)
  h = {F} get-tuple-element(g), index=0
  w = {F} get-tuple-element(g), index=1
  d = {F} dot(h, w), {DOT}
  ROOT e = {F} tanh(d) }}
no{n} {{ g = {given} parameter(0)
  h = {F} get-tuple-element(g), index=0
  ROOT e = {F} negate(h) }}""")
        outside += [
            f"given{n} = {given} tuple(h{n}, w)",
            f"h{n + 1} = {F} conditional(which, given{n}, given{n}), true_computation=yes{n}, false_computation=no{n}",
        ]
    return f"{''.join(inside)}\nENTRY main {{ {chr(10).join(outside)}\n ROOT t = {F} negate(h{units}) }}"


def elementwise(units: int) -> str:
    """A long way from one product to another, every step of which reads one value."""
    lines = [f"x = {F} parameter(0)", f"h0 = {F} dot(x, x), {DOT}", f"r = {F} tanh(h0)"]
    lines += [f"h{n + 1} = {F} {('subtract', 'multiply', 'maximum')[n % 3]}(h{n}, r)" for n in range(4 * units)]
    return f"ENTRY main {{ {chr(10).join(lines)}\n ROOT t = {F} dot(h{4 * units}, x), {DOT} }}"


def equal_regions(units: int) -> str:
    """Weights that are each changed by a function of a product with them."""
    lines = [f"x = {F} parameter(0)"]
    for n in range(units):
        lines += [f"w{n} = {F} parameter({n + 1})", f"d{n} = {F} dot(x, w{n}), {DOT}", f"e{n} = {F} tanh(d{n})"]
        lines += [f"changed{n} = {F} subtract(w{n}, e{n})"]
    results = ", ".join(f"changed{n}" for n in range(units))
    return f"ENTRY main {{ {chr(10).join(lines)}\n ROOT t = ({', '.join([F] * units)}) tuple({results}) }}"


def counted(module: str, policy: str, event: str) -> int:
    """How many events of Python's interpreter the pass has: "line" of code, or "call" of a function."""
    count, original = 0, serialized(module)

    def trace(frame: FrameType, happened: str, argument: Any) -> Any:
        nonlocal count
        count += happened == event
        return trace if event == "line" else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        rewrite(original, policy=policy)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("policy", ["always", "stored"])
@pytest.mark.parametrize("program", [updates, loops, accumulated_sums, branches, elementwise])
def test_four_times_the_program_takes_four_times_the_steps(program: Any, policy: str) -> None:
    rewrite(serialized(program(2)), policy=policy)  # what is done once in a process
    small, large = (counted(program(units), policy, "line") for units in (UNITS, TIMES * UNITS))
    assert large <= MOST * small


def test_one_more_equal_region_takes_few_calls() -> None:
    rewrite(serialized(equal_regions(2)), policy="never")  # what is done once in a process
    small, large = (counted(equal_regions(units), "never", "call") for units in (UNITS, TIMES * UNITS))
    assert large - small <= MOST_CALLS * (TIMES - 1) * UNITS
