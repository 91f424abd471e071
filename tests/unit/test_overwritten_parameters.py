"""Overwritten parameters: those that an update, a loop or a branch changes in their buffer, and no others."""

from __future__ import annotations

import pytest

from hlo_dispatch.analysis.overwritten_parameters import overwritten_parameters
from matching import parsed

F, PIECE = "f32[4]{0}", "f32[1]{0}"
STATE = f"(s32[], {F}, {F})"
COMPUTATIONS = f"""
update {{ p = {F} parameter(0)
  piece = {PIECE} parameter(1)
  at = s32[] parameter(2)
  ROOT u = {F} dynamic-update-slice(p, piece, at) }}
go_on {{ s = {STATE} parameter(0)
  ROOT yes = pred[] constant(true) }}
body {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  kept = {F} get-tuple-element(s), index=1
  changed = {F} get-tuple-element(s), index=2
  row = {PIECE} dynamic-slice(kept, i), dynamic_slice_sizes={{1}}
  next = {F} dynamic-update-slice(changed, row, i)
  ROOT t = {STATE} tuple(i, kept, next) }}
writing {{ b = {F} parameter(0)
  one = {PIECE} constant({{1}})
  zero = s32[] constant(0)
  ROOT w = {F} dynamic-update-slice(b, one, zero) }}
reading {{ b = {F} parameter(0)
  ROOT n = {F} negate(b) }}
forwarding {{ ROOT b = {F} parameter(0) }}
"""
ENTRY = f"""ENTRY main {{ first = {F} parameter(0)
  second = {F} parameter(1)
  piece = {PIECE} parameter(2)
  at = s32[] parameter(3)
  """


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (f"ROOT r = {F} dynamic-update-slice(first, piece, at)", {0}),
        (f"ROOT r = {F} fusion(first, piece, at), kind=kLoop, calls=update", {0}),
        (f"copy = {F} copy(first)\n ROOT r = {F} dynamic-update-slice(copy, piece, at)", set()),
        (f"other = {F} bitcast(first)\n ROOT r = {F} dynamic-update-slice(other, piece, at)", {0}),
        (f"ROOT r = {F} add(first, second)", set()),
        # What a loop only reads, as it does weights, is not changed; the same for a branch.
        (f"s = {STATE} tuple(at, first, second)\n ROOT r = {STATE} while(s), condition=go_on, body=body", {1}),
        (f"ROOT r = {F} conditional(at, first, second), branch_computations={{writing, reading}}", {0}),
        (f"ROOT r = {F} conditional(at, second, first), branch_computations={{reading, reading}}", set()),
        (
            f"c = {F} call(first), to_apply=forwarding\n ROOT r = {F} dynamic-update-slice(c, piece, at)",
            {0},
        ),
    ],
)
def test_overwritten(result: str, expected: set[int]) -> None:
    module = parsed(f"{COMPUTATIONS}\n{ENTRY}{result} }}")
    assert overwritten_parameters(module, {0, 1, 2, 3}) == expected
    assert overwritten_parameters(module, {1}) == expected & {1}
