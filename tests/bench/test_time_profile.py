"""`profile`: instructions are timed by name, and a region's time is its part of the fusions that hold it."""

from __future__ import annotations

import pytest

import hlo_dispatch
from hlo_dispatch.bench import in_jax
from hlo_dispatch.bench.cases import make_case
from hlo_dispatch.bench.profile import profile_module
from hlo_dispatch.bench.thunks import NoTrace, _lengths, instruction_seconds
from hlo_dispatch.jax_plugin.explaining import optimized


@pytest.fixture(scope="module")
def module() -> bytes:
    import jax
    import jax.numpy as jnp

    case = make_case("conv_bias_relu", "n=1,c=32,h=28,w=28,k=32,r=3")
    convolve = in_jax.function(case)
    x, w, b = in_jax.arguments(case)
    hlo_dispatch.uninstall()
    # a convolution that a kernel takes, and a sort that none does
    return optimized(lambda x, w, b: jnp.sort(jax.lax.stop_gradient(convolve(x, w, b)), axis=1), x, w, b)


@pytest.mark.timing
def test_regions_and_what_is_left(module: bytes) -> None:
    found = profile_module(module, policy="always", runs=4, seconds=0.05)
    (region,) = found.regions
    assert region.kernel == "onednn.convolution"
    assert "relu" in region.formula
    assert 0 < region.stock < found.stock_instructions
    assert region.dispatched is not None
    assert 0 < region.dispatched < found.dispatched_instructions
    assert "sort" in found.left[0].opcode
    rest = sum(left.seconds for left in found.left)
    assert rest + region.dispatched == pytest.approx(found.dispatched_instructions)


def test_nothing_dispatched_leaves_everything(module: bytes) -> None:
    found = profile_module(module, policy="never", runs=2, seconds=0.01)
    assert [region.dispatched for region in found.regions] == [None]
    assert sum(left.seconds for left in found.left) == pytest.approx(found.dispatched_instructions)
    assert found.kinds.keys() == {"stock", "dispatched"}
    assert all(kinds["seconds"]["products"] > 0 for kinds in found.kinds.values())


def test_work_that_goes_on_lasts_until_its_end() -> None:
    # (start, duration) of two calls; the first one's end comes after its thunk returned, the second has no mark
    assert _lengths([(0, 5), (100, 7)], [50]) == [50, 7]
    assert _lengths([(0, 5), (100, 7)], [150]) == [5, 50]
    assert _lengths([(0, 5)], []) == [5]


def test_no_trace_is_said() -> None:
    with pytest.raises(NoTrace, match="names no instruction"):
        instruction_seconds(lambda: None, 1)
