"""Matrix products against a float64 reference: transposes, batches, broadcasts, odd sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from calls import assert_close, matmul_call, random_values, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels

pytestmark = pytest.mark.any_python


@st.composite
def products(draw, dtype: str):
    sizes = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 64, 100])
    rows, columns, depth = draw(sizes), draw(sizes), draw(sizes)
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    source_batch = [1 if draw(st.integers(0, 3)) == 0 else size for size in batch]
    weights_batch = [1 if draw(st.integers(0, 3)) == 0 else size for size in batch]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    axes = list(range(len(batch)))
    normal, transposed = [*axes, len(batch), len(batch) + 1], [*axes, len(batch) + 1, len(batch)]

    source = tensor(random_values(generator, [*source_batch, rows, depth], dtype),
                    draw(st.sampled_from([normal, transposed])))  # fmt: skip
    weights = tensor(random_values(generator, [*weights_batch, depth, columns], dtype),
                     draw(st.sampled_from([normal, transposed])))  # fmt: skip
    bias = random_values(generator, [columns]) if draw(st.booleans()) else None
    return matmul_call(source, weights, bias), source, weights, bias


def check(case, dtype: str) -> None:
    call, source, weights, bias = case
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal):
        assert planned.code in ("reference-kernel", "kernel-unsupported")
        return
    left, right = source.values.astype(np.float64), weights.values.astype(np.float64)
    expected, magnitude = left @ right, np.abs(left) @ np.abs(right)
    if bias is not None:
        expected, magnitude = expected + bias.astype(np.float64), magnitude + np.abs(bias)
    assert_close(call.run(), expected, magnitude, dtype)


@pytest.mark.any_avx512
@settings(max_examples=150, deadline=None)
@given(products("f32"))
def test_any_f32_product(case):
    check(case, "f32")


@settings(max_examples=80, deadline=None)
@given(products("bf16"))
def test_any_bf16_product(case):
    check(case, "bf16")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_batches_whose_matrices_lie_in_each_other(dtype: str):
    """Beside a batch dimension of one oneDNN computes some of them wrong: those are refused."""
    generator = np.random.default_rng(6)
    taken = 0
    for source_layout, weights_layout in itertools.product(itertools.permutations(range(4)), repeat=2):
        if generator.integers(6):
            continue
        source_batch, weights_batch = ([generator.choice([1, 2]), generator.choice([1, 3])] for _ in range(2))
        source = tensor(random_values(generator, [*source_batch, 3, 20], dtype), list(source_layout))
        weights = tensor(random_values(generator, [*weights_batch, 20, 7], dtype), list(weights_layout))
        call = matmul_call(source, weights)
        taken += not isinstance(kernels.plan(call.name, call.spec), Refusal)
        check((call, source, weights, None), dtype)
    assert taken


def test_weights_in_onednns_own_layout():
    generator = np.random.default_rng(3)
    source, weights = tensor(random_values(generator, [5, 70])), tensor(random_values(generator, [70, 33]))
    call = matmul_call(source, weights)
    call.spec["weights_format"] = "any"
    check((call, source, weights, None), "f32")


def test_result_layout_is_a_matter_of_strides():
    generator = np.random.default_rng(4)
    source, weights = tensor(random_values(generator, [5, 70])), tensor(random_values(generator, [70, 33]))
    check((matmul_call(source, weights, result_layout=[1, 0]), source, weights, None), "f32")


def test_operands_that_are_parts_of_their_buffers():
    generator = np.random.default_rng(5)
    source, weights = random_values(generator, [17, 9]), random_values(generator, [9, 33])
    call = matmul_call(tensor(source[3:12:2]), tensor(weights[:, 6:27]))
    call.operands[:] = [source, weights]
    call.spec |= {"src_strides": [18, 1], "src_offset": 27, "src_elements": 153}
    call.spec |= {"weights_strides": [33, 1], "weights_offset": 6, "weights_elements": 297}
    expected = source[3:12:2].astype(np.float64) @ weights[:, 6:27].astype(np.float64)
    np.testing.assert_allclose(call.run(), expected, rtol=0, atol=1e-5)
