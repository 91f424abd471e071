"""Convolutions of f32 whose result is rounded to bf16, on processors with and without instructions for that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch


@pytest.mark.parametrize(("window", "channels"), [(1, 26), (3, 5), (3, 32)])
def test_convolutions_of_f32_with_a_result_of_bf16(window: int, channels: int) -> None:
    """oneDNN rounds with an instruction of AVX-512 BF16 whether the processor has it or not."""
    generator = np.random.default_rng(window + channels)
    x = jnp.asarray(generator.standard_normal((1, 9, 9, channels)), "float32")
    w = jnp.asarray(generator.standard_normal((window, window, channels, 8)) * 0.1, "float32")

    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y).astype("bfloat16")

    stock = jax.jit(program)(x, w)
    with hlo_dispatch.enabled(policy="always"):
        found = jax.jit(lambda x, w: program(x, w))(x, w)
        (region,) = hlo_dispatch.explain(program, x, w).dispatched
    assert region.entry == "convolution"
    np.testing.assert_allclose(np.asarray(found, "float64"), np.asarray(stock, "float64"), rtol=1e-2, atol=1e-2)
