"""Own reorders into oneDNN's layouts: partial blocks, odd pairs, reused memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calls import DTYPES, Call, Window, convolution_call, matmul_call, tensor

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels
from processor import lacks, skip_emulated

pytestmark = pytest.mark.any_python

Case = tuple[Call, np.ndarray]


def integers(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small enough that every sum of products is exact in f32, in any order."""
    return generator.integers(-2, 3, shape).astype(DTYPES[dtype])


def packed(call: Call, expected: np.ndarray) -> Case:
    call.spec["weights_format"] = "any"
    planned = kernels.plan(call.name, call.spec)
    assert not isinstance(planned, Refusal), planned
    if not planned.reorders_weights:
        skip_emulated(call.spec["src_type"], f"{planned.implementation} reads weights as they are")
    assert planned.reorders_weights
    return call, expected


def product(rows: int, depth: int, columns: int, dtype: str) -> Case:
    generator = np.random.default_rng(rows * 31 + depth * 7 + columns)
    source, weights = integers(generator, (rows, depth), dtype), integers(generator, (depth, columns), dtype)
    return packed(matmul_call(tensor(source), tensor(weights)), source.astype(np.float64) @ weights.astype(np.float64))


def pointwise(size: int, inputs: int, outputs: int, dtype: str, groups: int = 1) -> Case:
    """A 1x1 convolution, in groups as Keras writes it, which is a product for each of them."""
    generator = np.random.default_rng(size * 31 + inputs * 7 + outputs)
    source = integers(generator, (1, groups * inputs, size, size), dtype)
    weights = integers(generator, (groups, outputs, inputs, 1, 1), dtype)
    laid_out = tensor(weights, [3, 4, 2, 0, 1]) if groups > 1 else tensor(weights[0], [2, 3, 1, 0])
    window = Window((1, 1), (0, 0), (0, 0), (0, 0))
    call = convolution_call(tensor(source, [0, 2, 3, 1]), laid_out, window, None, [0, 2, 3, 1])
    split = source.reshape(1, groups, inputs, size, size).astype(np.float64)
    expected = np.einsum("ngixy,goi->ngoxy", split, weights[..., 0, 0].astype(np.float64))
    return packed(call, expected.reshape(1, groups * outputs, size, size))


def rounded(call: Call, expected: np.ndarray) -> np.ndarray:
    """The sums are exact; what the call returns of them has the digits of its type."""
    return expected.astype(call.result_dtype).astype(np.float64)


def check(case: Case) -> None:
    """Four times: the copy is written with ordinary stores at first, with streaming ones then (store_choice.h)."""
    call, expected = case
    compiled = call.compiled()
    for _ in range(4):
        np.testing.assert_array_equal(call.logical(compiled(*call.operands)), rounded(call, expected))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 9), (3, 17), (13, 16), (16, 33), (31, 48), (100, 80), (257, 129)])
def test_blocks_that_are_not_full(inputs: int, outputs: int, dtype: str) -> None:
    check(pointwise(9, inputs, outputs, dtype))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(3, 5, 7), (4, 16, 16), (16, 1, 1), (33, 1, 1)])
def test_groups(groups: int, inputs: int, outputs: int, dtype: str) -> None:
    check(pointwise(7, inputs, outputs, dtype, groups))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(70, 1, 70), (65, 17, 65), (130, 333, 77)])
def test_products(rows: int, depth: int, columns: int, dtype: str) -> None:
    check(product(rows, depth, columns, dtype))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 16), (5, 17), (33, 31), (301, 260)])
def test_weights_back_to_front(inputs: int, outputs: int, dtype: str) -> None:
    """The copy turns them, without another one of its own in the scratch memory."""
    generator = np.random.default_rng(inputs * 7 + outputs)
    source = integers(generator, (2, inputs, 7, 6), dtype)
    weights = integers(generator, (outputs, inputs, 3, 2), dtype)
    wide = source.astype(np.float64)
    window = Window((1, 1), (0, 0), (0, 0), (0, 0))
    laid_out = tensor(weights, [2, 3, 1, 0])
    call = convolution_call(tensor(source, [0, 2, 3, 1]), laid_out, window, None, [0, 2, 3, 1])
    call.spec["weights_reversed"] = 1
    turned = weights[:, :, ::-1, ::-1].astype(np.float64)
    places = [(y, x) for y in range(3) for x in range(2)]
    pieces = (np.einsum("niyx,oi->noyx", wide[:, :, y : y + 5, x : x + 5], turned[:, :, y, x]) for y, x in places)
    checked = packed(call, sum(pieces, np.zeros(())))
    scratch = [kernels.plan(call.name, call.spec | {"weights_reversed": turns}).scratch_bytes for turns in (0, 1)]
    assert scratch[0] == scratch[1]
    check(checked)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_weights_that_several_threads_copy(dtype: str) -> None:
    check(pointwise(5, 1031, 999, dtype))
    check(product(64, 1031, 999, dtype))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_nothing_is_left_of_the_call_before(dtype: str) -> None:
    """The memory of the copies is shared: what is beyond the weights must be zero, not what somebody left there."""
    call, _ = pointwise(9, 256, 256, dtype)
    call.operands[1] = np.full_like(call.operands[1], np.nan)
    assert np.isnan(call.run()).all()
    check(pointwise(9, 13, 17, dtype))
    check(product(65, 17, 65, dtype))


def test_calls_at_once_do_not_share_a_copy() -> None:
    dtypes = ["f32"] if lacks("bf16") else ["f32", "bf16"]
    cases = [pointwise(14, 96 + i, 200 - i, dtype) for i in range(4) for dtype in dtypes]
    compiled = [call.compiled() for call, _ in cases]

    def often(index: int) -> None:
        call, expected = cases[index]
        for _ in range(50):
            np.testing.assert_array_equal(call.logical(compiled[index](*call.operands)), rounded(call, expected))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(often, range(len(cases))))
