"""A value for each channel times an image: whatever code the library has for it, in place as well."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import DTYPES, Call, attribute, random_values, tensor

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

pytestmark = pytest.mark.any_python

CHANNELS = [1, 3, 16, 24, 32, 48, 65, 144, 1152]
SPACE = [(1, 1), (7, 7), (1, 37), (28, 29)]
LAYOUT = (0, 2, 3, 1)


def gate_call(image: np.ndarray, gate: np.ndarray) -> Call:
    source = tensor(image, LAYOUT)
    described = {"abi": registry.abi()} | source.attributes("src") | source.attributes("dst")
    return Call("onednn.binary", described, [source.memory], image.shape, image.dtype, LAYOUT).binary(
        "mul", gate, LAYOUT
    )


def in_place(call: Call) -> np.ndarray:
    """The result, written where the image was."""
    planned = call.planned()
    assert not isinstance(planned, Refusal), planned
    wire = {**call.asked(), "scratch": planned.scratch_bytes, **call.spec}
    image, *_ = call.operands
    results = (
        jax.ShapeDtypeStruct(image.shape, image.dtype),
        jax.ShapeDtypeStruct((planned.scratch_bytes,), np.uint8),
    )
    made = jax.ffi.ffi_call(registry.kernels()[call.name].target, results, input_output_aliases={0: 0})
    attributes = {key: attribute(value) for key, value in wire.items()}
    run = jax.jit(lambda image, *rest: made(image, *rest, **attributes)[0], donate_argnums=0)
    given = jnp.asarray(image) + 0
    place = given.unsafe_buffer_pointer()
    found = run(given, *call.operands[1:])
    assert found.unsafe_buffer_pointer() == place
    return call.logical(found)


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("space", SPACE, ids=str)
def test_gate(generator: np.random.Generator, dtype: str, channels: int, space: tuple[int, int]) -> None:
    image = random_values(generator, (1, channels, *space), dtype)
    gate = random_values(generator, (1, channels, 1, 1), dtype)
    image[0, 0, 0, 0] = np.inf
    image[0, -1, -1, -1] = np.nan
    residual = random_values(generator, image.shape, dtype)
    call = gate_call(image, gate)
    if isinstance(call.planned(), Refusal):
        pytest.skip(f"this processor has no arithmetic in {dtype}")
    product = image.astype(np.float64) * gate.astype(np.float64)
    # One rounding, to the result's type, is all that there is.
    np.testing.assert_array_equal(call.run(), product.astype(np.float32).astype(DTYPES[dtype]).astype(np.float64))
    np.testing.assert_array_equal(in_place(call), call.run())
    call.eltwise("linear", 2.0, 1.0).binary("add", residual, LAYOUT)
    expected = 2 * product + 1 + residual.astype(np.float64)
    tolerance = 2.0**-7 if dtype == "bf16" else 2.0**-22
    np.testing.assert_allclose(call.run(), expected, rtol=tolerance, atol=4 * tolerance)
    np.testing.assert_array_equal(in_place(call), call.run())


@pytest.mark.parametrize("images", [2, 5])
def test_each_image_has_its_own_gates(generator: np.random.Generator, images: int) -> None:
    image, gate = (random_values(generator, (images, 32, *space)) for space in ((5, 3), (1, 1)))
    call = gate_call(image, gate)
    np.testing.assert_allclose(call.run(), image.astype(np.float64) * gate, rtol=1e-6)


def test_the_faster_code_is_taken_where_the_library_has_it(generator: np.random.Generator) -> None:
    """Whole registers of channels, without a gap: eight or sixteen to each."""
    image, gate = (random_values(generator, (1, 32, *space)) for space in ((9, 9), (1, 1)))
    found = kernels.plan("onednn.binary", gate_call(image, gate).asked())
    assert not isinstance(found, Refusal)
    if "avx512" not in found.implementation and "brdgmm" not in found.implementation:
        pytest.skip(f"{found.implementation} is what the library has here")
    assert found.implementation.startswith("brdgmm_dw")
    gap = random_values(generator, (1, 19, 1, 1))
    narrow = gate_call(random_values(generator, (1, 19, 9, 9)), gap)
    assert not kernels.plan("onednn.binary", narrow.asked()).implementation.startswith("brdgmm_dw")
