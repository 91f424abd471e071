"""Random inputs of regions: integers of their type's whole range where nothing can be out of range."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_dispatch.autotune.run.inputs import random_inputs
from hlo_dispatch.ir.shape import shape_of
from matching import parsed

DEFINED_FOR_ALL = {
    "product": """ENTRY main { a = s16[64,32]{1,0} parameter(0)
  b = u32[64,32]{1,0} parameter(1)
  t = s16[32,64]{1,0} transpose(a), dimensions={1,0}
  p = s16[64,64]{1,0} dot(a, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s16[64,64]{1,0}, u32[64,32]{1,0}) tuple(p, b) }""",
    "sort": """less { x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT is = pred[] compare(x, y), direction=LT }
ENTRY main { a = s32[64,32]{1,0} parameter(0)
  b = s64[64,32]{1,0} parameter(1)
  s = s32[64,32]{1,0} sort(a), dimensions={1}, to_apply=less
  ROOT r = (s32[64,32]{1,0}, s64[64,32]{1,0}) tuple(s, b) }""",
}
NOT_DEFINED_FOR_ALL = {
    "index": """ENTRY main { a = s32[64]{0} parameter(0)
  i = s32[] parameter(1)
  ROOT r = s32[1]{0} dynamic-slice(a, i), dynamic_slice_sizes={1} }""",
    "divisor": """ENTRY main { a = s32[64]{0} parameter(0)
  b = s32[64]{0} parameter(1)
  ROOT r = s32[64]{0} divide(a, b) }""",
    "shift": """ENTRY main { a = u32[64]{0} parameter(0)
  b = u32[64]{0} parameter(1)
  ROOT r = u32[64]{0} shift-left(a, b) }""",
    "number": """half { a = s32[64]{0} parameter(0)
  ROOT r = f16[64]{0} convert(a) }
ENTRY main { a = s32[64]{0} parameter(0)
  ROOT f = f16[64]{0} fusion(a), kind=kLoop, calls=half }""",
    "trip count": """body { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], s32[]) tuple(next, n) }
before { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT is = pred[] compare(i, n), direction=LT }
ENTRY main { n = s32[] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], s32[]) tuple(zero, n)
  ROOT w = (s32[], s32[]) while(s), condition=before, body=body }""",
}


def inputs(text: str) -> list[np.ndarray]:
    module = parsed(text)
    parameters = [one for one in module.entry.instructions if one.opcode == "parameter"]
    ordered = sorted(parameters, key=lambda one: one.parameter_number)
    return random_inputs(module, [shape_of(one.shape) for one in ordered], seed=0)


@pytest.mark.parametrize("text", DEFINED_FOR_ALL.values(), ids=DEFINED_FOR_ALL)
def test_the_whole_range_where_integers_are_values(text: str) -> None:
    for values in inputs(text):
        bounds = np.iinfo(values.dtype)
        middle = bounds.min // 2 + bounds.max // 2
        quarter = bounds.max // 4
        assert values.min() < middle - quarter
        assert values.max() > middle + quarter


@pytest.mark.parametrize("text", NOT_DEFINED_FOR_ALL.values(), ids=NOT_DEFINED_FOR_ALL)
def test_small_ones_where_one_could_be_out_of_range(text: str) -> None:
    for values in inputs(text):
        assert set(np.unique(values)) <= {0, 1}
