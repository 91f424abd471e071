"""Fourier transforms by oneMKL against stock: every kind, rank, axis and scaling, and what transposes become."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from side_by_side import assert_agree, run_both

PROGRAMS = {
    "fft": (jnp.fft.fft, (3, 17)),
    "ifft": (jnp.fft.ifft, (2, 3, 16)),
    "one": (jnp.fft.fft, (5, 1)),
    "rfft": (lambda x: jnp.fft.rfft(x.real), (2, 3, 15)),
    "rfft_even": (lambda x: jnp.fft.rfft(x.real), (4, 16)),
    "irfft": (lambda x: jnp.fft.irfft(x, n=15), (3, 8)),
    "irfft_even": (jnp.fft.irfft, (3, 9)),
    "hfft": (jnp.fft.hfft, (3, 9)),
    "ihfft": (lambda x: jnp.fft.ihfft(x.real), (3, 9)),
    "fft2": (jnp.fft.fft2, (5, 16, 9)),
    "ifft2": (jnp.fft.ifft2, (16, 9)),
    "rfft2": (lambda x: jnp.fft.rfft2(x.real), (5, 16, 9)),
    # Of a half spectrum that belongs to no real array: the order of the dimensions matters.
    "irfft2": (lambda x: jnp.fft.irfft2(x, s=(16, 9)), (5, 16, 5)),
    "fftn": (jnp.fft.fftn, (6, 7, 8)),
    "rfftn": (lambda x: jnp.fft.rfftn(x.real), (6, 7, 8)),
    "irfftn": (lambda x: jnp.fft.irfftn(x, s=(6, 7, 9)), (2, 6, 7, 5)),
    "first_axis": (lambda x: jnp.fft.fft(x, axis=0), (12, 7)),
    "middle_axis": (lambda x: jnp.fft.fft(x, axis=1), (3, 12, 7)),
    "two_axes_apart": (lambda x: jnp.fft.fftn(x, axes=(1, 3)), (3, 4, 5, 6)),
    "transposed_around": (lambda x: jnp.swapaxes(jnp.fft.fft(jnp.swapaxes(x, 0, 1)), 0, 2), (3, 4, 5)),
    "orthonormal": (lambda x: jnp.fft.fft(x, norm="ortho"), (3, 9)),
    "convolution": (lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x.real) * jnp.fft.rfft2(x.imag)), (4, 16, 16)),
    "gradient": (jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft2(x.real)) ** 2), holomorphic=False), (8, 8)),
    "in_a_loop": (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.fft.fft(y, axis=0) / 4, x), (16, 4)),
    "shifted": (lambda x: jnp.fft.fftshift(jnp.fft.fft2(x)), (8, 8)),
}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_stock(name: str, dtype: str) -> None:
    program, shape = PROGRAMS[name]
    with jax.enable_x64(True):
        random = np.random.default_rng(0)
        x = (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
        both = run_both(program, x)
        assert_agree(both, 1e-6 if dtype == "complex64" else 1e-14)
        assert 'custom_call_target="hlo_dispatch.onemkl.fft"' in both.text


def test_transposes_around_are_strides() -> None:
    x = np.ones((32, 8), np.complex64)
    both = run_both(lambda x: jnp.fft.fft(x, axis=0), x)
    assert_agree(both)
    assert both.calls == 1
    assert " transpose(" not in both.text
