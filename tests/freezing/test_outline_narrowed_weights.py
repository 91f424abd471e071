"""Outlining of narrowed weights: a product's region reads integers, not the floats that they were made of."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.extract.region import RegionExtractor
from hlo_dispatch.autotune.run.executable import Executable, start, to_device
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.partition.outline_narrowed_weights import outline_narrowed_weights
from matching import parsed

PROGRAM = """
widened {
  w = f32[128,48]{1,0} parameter(0)
  s = f32[2,48]{1,0} parameter(1)
  grouped = f32[2,64,48]{2,1,0} bitcast(w)
  scales = f32[2,64,48]{2,1,0} broadcast(s), dimensions={0,2}
  divided = f32[2,64,48]{2,1,0} divide(grouped, scales)
  rounded = f32[2,64,48]{2,1,0} round-nearest-even(divided)
  least = f32[] constant(-7)
  lowest = f32[2,64,48]{2,1,0} broadcast(least), dimensions={}
  most = f32[] constant(7)
  highest = f32[2,64,48]{2,1,0} broadcast(most), dimensions={}
  clamped = f32[2,64,48]{2,1,0} clamp(lowest, rounded, highest)
  narrow = s8[2,64,48]{2,1,0} convert(clamped)
  wide = f32[2,64,48]{2,1,0} convert(narrow)
  scaled = f32[2,64,48]{2,1,0} multiply(wide, scales)
  ROOT flat = f32[128,48]{1,0} bitcast(scaled) }

ENTRY main {
  w = f32[128,48]{1,0} parameter(0)
  s = f32[2,48]{1,0} parameter(1)
  x = f32[3,128]{1,0} parameter(2)
  both = f32[128,48]{1,0} fusion(w, s), kind=kLoop, calls=widened
  ROOT product = f32[3,48]{1,0} dot(x, both), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def region_inputs(text: str, widened: frozenset[int]) -> list[str]:
    """Shapes that the product's region reads after the pass."""
    module = parsed(text)
    planner = pipeline((), "always").planner
    outline_narrowed_weights(module, PassContext(planner=planner, widened=widened))
    graph = FlatGraph(module, module.entry)
    plan = planner.plan(graph, lambda match, default: None, small=False)
    ((match, _),) = [decision for decision in plan.decisions.values() if decision[0] is not None]
    assert match is not None
    extracted = RegionExtractor(graph, Digests(module)).extract(match)
    assert isinstance(extracted, ExtractedModule), str(extracted)
    return sorted(str(shape).partition("{")[0] for shape in extracted.inputs)


def test_a_region_reads_integers() -> None:
    assert region_inputs(PROGRAM, frozenset((0, 1))) == ["f32[2,48]", "f32[3,128]", "s8[2,64,48]"]


def test_nothing_is_outlined_where_no_weight_was_narrowed() -> None:
    module = parsed(PROGRAM)
    before = module.to_bytes()
    context = PassContext(planner=pipeline((), "always").planner, frozen=frozenset((0, 1)))
    assert not outline_narrowed_weights(module, context)
    assert module.to_bytes() == before


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_stay(dynamic: bool) -> None:
    """Equal to the bit; of a weight that is not frozen nothing is outlined."""
    random = np.random.default_rng()
    arrays = [random.standard_normal((128, 48)), random.uniform(0.1, 1, (2, 48)), random.standard_normal((3, 128))]
    arguments = [array.astype("float32") for array in arrays]
    module = parsed(PROGRAM)
    changed = outline_narrowed_weights(
        module, PassContext(planner=pipeline((), "always").planner, widened=frozenset((1,) if dynamic else (0, 1)))
    )
    assert bool(changed) is not dynamic
    start()
    (before,), (after,) = (Executable(one)(to_device(arguments)) for one in (parsed(PROGRAM), module))
    np.testing.assert_array_equal(before, after)
