"""Calls in f16: oneDNN's own where the processor has such arithmetic, else in f32 between conversions of ours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import Call, Window, assert_close, convolution_call, convolve, matmul_call, tensor
from prepacked_calls import prepacked_call_of, run_prepacked

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels

pytestmark = pytest.mark.any_processor
SIZES = [(1, 1, 1), (5, 17, 33), (64, 70, 48), (1, 300, 65)]


def drawn(number: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(shape).astype(np.float16)


def check_product(call: Call, a: np.ndarray, b: np.ndarray, found: np.ndarray | None = None) -> None:
    wide, other = a.astype(np.float64), b.astype(np.float64)
    assert_close(call.run() if found is None else found, wide @ other, np.abs(wide) @ np.abs(other), "f16")


@pytest.mark.parametrize(("rows", "depth", "columns"), SIZES)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["rows", "columns"])
def test_products(rows: int, depth: int, columns: int, order: tuple[int, int]) -> None:
    a, b = drawn(1, rows, depth), drawn(2, depth, columns)
    check_product(matmul_call(tensor(a, order), tensor(b, order)), a, b)


def test_batches_that_lie_in_another_order() -> None:
    a, b = drawn(3, 3, 2, 9, 20), drawn(4, 3, 2, 20, 13)
    call = matmul_call(tensor(a, (2, 0, 1, 3)), tensor(b, (2, 1, 0, 3)), None, (2, 0, 1, 3))
    check_product(call, a, b)


def test_an_epilogue_of_halves() -> None:
    a, b, bias, residual = drawn(5, 33, 40), drawn(6, 40, 24), drawn(7, 24), drawn(8, 33, 24)
    call = matmul_call(tensor(a), tensor(b), bias).binary("add", residual).eltwise("relu")
    wide = [value.astype(np.float64) for value in (a, b, bias, residual)]
    expected = np.maximum(wide[0] @ wide[1] + wide[2] + wide[3], 0)
    assert_close(call.run(), expected, np.abs(wide[0]) @ np.abs(wide[1]) + 4, "f16")


def test_a_part_of_a_buffer() -> None:
    buffer, b = drawn(9, 10, 50), drawn(10, 20, 8)
    call = matmul_call(tensor(np.ascontiguousarray(buffer[2:8, 7:27])), tensor(b))
    call.spec |= {"src_strides": [50, 1], "src_offset": 107, "src_elements": 500}
    call.operands[0] = buffer
    check_product(call, buffer[2:8, 7:27], b)


@pytest.mark.parametrize(("rows", "depth", "columns"), SIZES[1:])
def test_packed_weights_are_widened_once(rows: int, depth: int, columns: int) -> None:
    a, b = drawn(11, rows, depth), drawn(12, depth, columns)
    call = matmul_call(tensor(a), tensor(b))
    form = prepacked_call_of(call)
    if form is None:
        pytest.skip("these weights are read as they are")
    found = run_prepacked(call, form)
    check_product(call, a, b, found)


@pytest.mark.parametrize("groups", [1, 4, 12])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_convolutions(groups: int, last: bool) -> None:
    source, bias = drawn(13, 2, 12, 11, 9), drawn(14, 12)
    weights = drawn(15, *((12, 12) if groups == 1 else (groups, 12 // groups, 12 // groups)), 3, 3)
    residual = drawn(16, 2, 12, 6, 9)
    order = [0, 2, 3, 1] if last else [0, 1, 2, 3]
    filters = list(range(weights.ndim))
    if last:
        filters = [*filters[-2:], *filters[-3::-1]]
    window = Window((2, 1), (0, 0), (1, 1), (1, 1))
    call = convolution_call(tensor(source, order), tensor(weights, filters), window, bias, order)
    expected = convolve(source, weights, window) + bias.astype(np.float64)[:, None, None]
    if last:  # oneDNN has nothing fast for such an operand in the other order
        call.binary("add", residual, order)
        expected += residual.astype(np.float64)
    call.eltwise("relu")
    expected = np.maximum(expected, 0)
    size = convolve(np.abs(source), np.abs(weights), window) + 4
    assert_close(call.run(), expected, size, "f16")
    form = prepacked_call_of(call)
    if form is not None:
        assert_close(run_prepacked(call, form), expected, size, "f16")


def test_one_dimension_and_reversed_weights() -> None:
    source, weights = drawn(17, 2, 6, 40), drawn(18, 8, 6, 5)
    window = Window((1,), (1,), (4,), (4,))
    call = convolution_call(tensor(source, [0, 2, 1]), tensor(weights, [2, 1, 0]), window, None, [0, 2, 1])
    turned = weights[..., ::-1]
    assert_close(
        call.run(), convolve(source, weights, window), convolve(np.abs(source), np.abs(weights), window), "f16"
    )
    call.spec["weights_reversed"] = 1
    assert_close(call.run(), convolve(source, turned, window), convolve(np.abs(source), np.abs(turned), window), "f16")


def test_every_half_is_what_it_was() -> None:
    """Times one: subnormal ones, infinities and NaN, too, and f32 in between is exact."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[:, None]
    one = np.ones((1, 1), np.float16)
    found = matmul_call(tensor(every), tensor(one)).compiled()(every, one)
    np.testing.assert_array_equal(np.asarray(found).view(np.float16), every)


def test_results_are_rounded_once_to_nearest() -> None:
    """Sums that are no halves: ties go to even, what is too large becomes infinite, what is too small subnormal."""
    rows = np.array([[1, 2**-11], [1, 3 * 2**-11], [65504, 15], [65504, 16], [-65504, -16], [2**-24, 2**-24 * 0.5]])
    a, b = rows.astype(np.float16), np.ones((2, 1), np.float16)
    call = matmul_call(tensor(a), tensor(b))
    with np.errstate(over="ignore"):
        expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(np.asarray(call.compiled()(a, b)).reshape(-1), expected.reshape(-1))


def test_gradients_and_transposed_convolutions() -> None:
    """The other families, of whole programs."""
    from side_by_side import run_both

    x, w = drawn(19, 2, 8, 9, 5), drawn(20, 3, 3, 5, 7)
    order = ("NHWC", "HWIO", "NHWC")

    def transposed(x: jax.Array, w: jax.Array) -> Any:
        return jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=order)

    def gradient(x: jax.Array, w: jax.Array) -> Any:
        def loss(w: jax.Array) -> jax.Array:
            return (jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=order) ** 2).sum() * 0.01

        return jax.grad(loss)(w)

    for program, kernel in ((transposed, "onednn.deconvolution"), (gradient, "onednn.weights_gradient")):
        both = run_both(program, jnp.asarray(x), jnp.asarray(w))
        assert kernel in {region.kernel for region in both.report.dispatched}
        wide = np.asarray(program(x.astype(np.float32), w.astype(np.float32)), np.float64)
        for found, allowed in ((both.dispatched[0], 1.0), (both.stock[0], 4.0)):
            assert np.abs(found.astype(np.float64) - wide).max() <= allowed * 4e-3 * np.abs(wide).max()


def test_a_sum_in_place_is_refused() -> None:
    """The result is converted, so that its buffer holds no value that the kernel could add to; or it is f16's own."""
    call = matmul_call(tensor(drawn(21, 8, 8)), tensor(drawn(22, 8, 8)))
    call.spec |= {"post_op_0": {"kind": "sum"}, "accumulated": 3}
    planned = kernels.plan(call.name, call.asked())
    assert isinstance(planned, Refusal) or "widened" not in planned.implementation
