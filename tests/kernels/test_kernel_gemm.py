"""oneMKL's products in f32 against a float64 reference: orders, parts, rows in a batch, and what follows them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from calls import Call, assert_close, matmul_call, random_values, tensor
from hypothesis import given, settings
from test_kernel_matmul import products
from test_kernel_post_ops import BINARY, ELTWISE

from hlo_dispatch.errors import Refusal

# The ISA cap does not reach oneMKL.
pytestmark = [pytest.mark.any_python, pytest.mark.any_processor, pytest.mark.onemkl]

GEMM = "onemkl.gemm"
# One row, one column, odd, no multiple of a vector, more than a thread has of either; rows in blocks of the cache.
SIZES = [(1, 1, 1), (1, 300, 513), (5, 64, 1000), (200, 300, 259), (259, 300, 200), (1000, 77, 1), (3, 2000, 1)]
MANY_ROWS = (3000, 8, 2000)


def product(
    rows: int,
    depth: int,
    columns: int,
    *,
    by_column: tuple[bool, bool, bool] = (False, False, False),
    bias: bool = False,
) -> tuple[Call, np.ndarray, np.ndarray]:
    """The call, what it gives in float64, and the sum of absolute products."""
    generator = np.random.default_rng(rows * 7 + columns)
    order = [[1, 0] if turned else [0, 1] for turned in by_column]
    source, weights = random_values(generator, [rows, depth]), random_values(generator, [depth, columns])
    added = random_values(generator, [columns]) if bias else None
    call = matmul_call(tensor(source, order[0]), tensor(weights, order[1]), added, order[2], name=GEMM)
    expected = source.astype(np.float64) @ weights.astype(np.float64)
    if added is not None:
        expected = expected + added
    return call, expected, np.abs(source).astype(np.float64) @ np.abs(weights).astype(np.float64)


@settings(max_examples=150, deadline=None)
@given(products("f32"))
def test_any_product(case) -> None:
    call, source, weights, bias = case
    call.name = GEMM
    planned = call.planned()
    if isinstance(planned, Refusal):
        assert planned.code == "kernel-unsupported"
        several = max(weights.values.shape[:-2], default=1) > 1
        broadcast = source.values.shape[:-2] != tuple(call.spec["dst_dims"][:-2])
        assert several or broadcast or source.values.ndim > 2, planned.sentence
        return
    left, right = source.values.astype(np.float64), weights.values.astype(np.float64)
    expected, magnitude = left @ right, np.abs(left) @ np.abs(right)
    if bias is not None:
        expected, magnitude = expected + bias.astype(np.float64), magnitude + np.abs(bias)
    assert_close(call.run(), expected, magnitude)


@pytest.mark.parametrize("by_column", [(False,) * 3, (True, True, False), (False, True, True), (True, False, True)])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_order_with_a_bias(sizes: tuple[int, int, int], by_column: tuple[bool, bool, bool]) -> None:
    call, expected, magnitude = product(*sizes, by_column=by_column, bias=True)
    assert_close(call.run(), expected, magnitude)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("name", ELTWISE)
def test_every_function_of_one_variable(name: str, by_column: bool) -> None:
    alpha, beta, function = ELTWISE[name]
    call, expected, magnitude = product(13, 40, 1100, by_column=(False, False, by_column))
    call.eltwise(name.partition(" ")[0], alpha, beta)
    wanted = function(expected)
    assert_close(call.run(), wanted, 4 * (magnitude + np.abs(wanted)) * (1 + np.abs(expected)))


@pytest.mark.parametrize("name", ["log", "sqrt", "pow", "round"])
def test_functions_of_positive_numbers(name: str) -> None:
    call, expected, magnitude = product(7, 9, 1030)
    call.eltwise("abs").eltwise("linear", 1.0, 0.5).eltwise(name, 2.0, 1.5)
    positive = np.abs(expected) + 0.5
    functions = {"log": np.log, "sqrt": np.sqrt, "pow": lambda x: 2 * x**1.5, "round": np.round}
    found, wanted = call.run(), functions[name](positive)
    if name == "round":  # halves may fall to either side
        assert np.mean(found != wanted) < 1e-3
    else:
        assert_close(found, wanted, 10 * (1 + magnitude) * (1 + wanted))


@pytest.mark.parametrize("name", ["relu", "clip", "tanh", "logistic", "gelu_erf", "elu", "swish", "soft_relu", "mish"])
def test_what_is_no_number_stays_none(name: str) -> None:
    """And infinities go where the function has its limits."""
    values = np.array([[np.nan, np.inf, -np.inf, 90.0, -90.0, 0.0]], np.float32)
    call = matmul_call(tensor(np.ones((1, 1), np.float32)), tensor(values), name=GEMM)
    alpha, beta, function = ELTWISE[name]
    found = call.eltwise(name, alpha, beta).run()
    with np.errstate(all="ignore"):
        wanted = function(values.astype(np.float64))
    wanted[0, 3] = {"soft_relu": 90.0, "mish": 90.0, "elu": 90.0}.get(name, wanted[0, 3])
    assert np.isnan(found[0, 0])
    np.testing.assert_allclose(found[0, 3:], wanted[0, 3:], rtol=1e-5, atol=1e-30)
    bounded = {"clip": (2.0, -0.5), "tanh": (1.0, -1.0), "logistic": (1.0, 0.0), "relu": (np.inf, 0.0)}
    if name in bounded:
        np.testing.assert_allclose(found[0, 1:3], bounded[name])


@pytest.mark.parametrize("by_column", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", BINARY)
def test_every_operation_with_every_operand(name: str, by_column: tuple[bool, bool]) -> None:
    """One number, one for each row or column, one for each element; operand and result in either order."""
    rows, columns = 37, 150
    call, expected, magnitude = product(rows, 20, columns, by_column=(False, False, by_column[0]))
    generator = np.random.default_rng(3)
    wanted, scale = expected, magnitude
    for shape in ((1, 1), (rows, 1), (1, columns), (rows, columns)):
        other = 1.5 + np.abs(random_values(generator, shape))
        call.binary(name, other, [1, 0] if by_column[1] else [0, 1])
        wanted = BINARY[name](wanted, other.astype(np.float64))
        scale = (scale + 1) * (1 + other) if name != "div" else scale
    assert_close(call.run(), wanted, scale)


def test_a_chain_in_its_order_while_rows_are_in_the_cache() -> None:
    call, expected, magnitude = product(*MANY_ROWS, bias=True)
    generator = np.random.default_rng(5)
    residual, gains = random_values(generator, MANY_ROWS[::2]), random_values(generator, [1, MANY_ROWS[2]])
    call.eltwise("tanh").binary("add", residual).binary("mul", gains).eltwise("relu")
    wanted = np.maximum((np.tanh(expected) + residual) * gains, 0)
    assert_close(call.run(), wanted, (magnitude + 1) * (1 + np.abs(gains)))


def test_rows_of_a_batch() -> None:
    generator = np.random.default_rng(6)
    source, weights = random_values(generator, [3, 1, 4, 20]), random_values(generator, [1, 1, 20, 33])
    for residual in ([3, 1, 4, 33], [3, 1, 4, 1], [1, 1, 1, 33], [1, 1, 1, 1]):
        call = matmul_call(tensor(source), tensor(weights), name=GEMM)
        added = random_values(generator, residual)
        wanted = source.astype(np.float64) @ weights.astype(np.float64) + added
        np.testing.assert_allclose(call.binary("add", added).run(), wanted, rtol=1e-5, atol=1e-4)


def test_operands_that_are_parts_of_their_buffers() -> None:
    generator = np.random.default_rng(5)
    source, weights = random_values(generator, [17, 9]), random_values(generator, [9, 33])
    call = matmul_call(tensor(source[3:12:2]), tensor(weights[:, 6:27]), name=GEMM)
    call.operands[:] = [source, weights]
    call.spec |= {"src_strides": [18, 1], "src_offset": 27, "src_elements": 153}
    call.spec |= {"weights_strides": [33, 1], "weights_offset": 6, "weights_elements": 297}
    expected = source[3:12:2].astype(np.float64) @ weights[:, 6:27].astype(np.float64)
    np.testing.assert_allclose(call.run(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"src_type": "bf16"}, "src: expected f32"),
        ({"bias_type": "bf16"}, "bias: expected f32"),
        ({"src_strides": [20, 2], "src_elements": 200, "src_offset": 0}, "src: expected rows or columns"),
        ({"src_dims": [3, 5, 8], "weights_dims": [3, 8, 6], "dst_dims": [3, 5, 6], "src_strides": [40, 8, 1],
          "weights_strides": [48, 6, 1], "dst_strides": [30, 6, 1]}, "weights: expected one matrix"),
        ({"src_dims": [1, 5, 8], "weights_dims": [1, 8, 6], "dst_dims": [3, 5, 6], "src_strides": [40, 8, 1],
          "weights_strides": [48, 6, 1], "dst_strides": [30, 6, 1]}, "src: expected rows for each"),
        ({"src_dims": [3, 5, 8], "weights_dims": [1, 8, 6], "dst_dims": [3, 5, 6], "src_strides": [8, 24, 1],
          "weights_strides": [48, 6, 1], "dst_strides": [30, 6, 1]}, "src: expected rows at equal distances"),
    ],
)  # fmt: skip
def test_what_gemm_cannot_express_is_a_refusal(changes: dict[str, object], sentence: str) -> None:
    call, *_ = product(5, 8, 6)
    refused = call.planned(**changes)
    assert isinstance(refused, Refusal)
    assert refused.code == "kernel-unsupported"
    assert refused.sentence.startswith(f"onemkl.gemm: {sentence}")


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"weights_dims": [9, 6], "weights_strides": [6, 1]}, "their sizes do not fit"),
        ({"dst_dims": [5, 6, 1], "dst_strides": [6, 1, 1]}, "expected as many dimensions as dst"),
        ({"weights_format": "blocked"}, "attribute 'weights_format': expected plain, any, best or packed"),
        ({"scratch": -1}, "attribute 'scratch'"),
        ({"scratch": None}, "attribute 'scratch' is missing"),
        ({"library": "1.0"}, "this executable was planned for oneMKL 1.0"),
        ({"post_op_0": {"kind": "sum"}}, "adds nothing to its result in place"),
        ({"post_op_0": {"kind": "binary"}}, "'algorithm' is missing"),
        ({"post_op_1": {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}}, "'post_op_0' is missing"),
        ({"post_op_0": {"kind": "eltwise", "algorithm": "relu6", "alpha": 0.0, "beta": 0.0}}, "expected one of abs"),
    ],
)
def test_bad_attributes_are_errors_that_name_them(changes: dict[str, object], fragment: str) -> None:
    call, *_ = product(5, 8, 6)
    function = call.compiled(**changes) if changes.get("scratch", 0) != -1 else None
    if function is None:
        with pytest.raises(ValueError, match=fragment):
            call.planned(**changes)
        return
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"hlo_dispatch\.onemkl\.gemm: ") as caught:
        function(*call.operands)
    assert fragment in str(caught.value)


def test_operands_of_another_size_are_an_error() -> None:
    call, *_ = product(5, 8, 6)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"weights: expected 192 bytes of f32, got 196 bytes of f32"):
        call.compiled()(call.operands[0], np.zeros((7, 7), np.float32))


def test_threads_that_run_one_executable() -> None:
    call, expected, magnitude = product(200, 300, 259, bias=True)
    function = call.eltwise("tanh").compiled()
    first = np.asarray(function(*call.operands))
    assert_close(call.logical(first), np.tanh(expected), magnitude)

    def often(_: int) -> None:
        for _ in range(40):
            np.testing.assert_array_equal(np.asarray(function(*call.operands)), first)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(often, range(4)))
