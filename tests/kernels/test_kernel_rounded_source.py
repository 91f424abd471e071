"""Products of a source that the kernel rounds to eight bits, against float64 of the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_matmul_calls import (
    DTYPES,
    GROUPED,
    QuantizedMatmulCall,
    packed,
    quantized_matmul,
    with_rounded_source,
    with_whole_numbers,
    with_zeros,
    wrong,
)

from dynamic_quantization import SMALLEST
from hlo_dispatch import _kernels
from hlo_dispatch.errors import Refusal
from hlo_dispatch.process.machine import this_machine

pytestmark = pytest.mark.any_python

# Rows, groups, numbers of a group, columns: one of everything; odd; no multiple of a step, a block, a tile; more than
# are packed at once, in many groups or in one.
SIZES = [(1, 1, 1, 1), (9, 1, 17, 5), (13, 3, 10, 33), (12, 2, 64, 64), (50, 16, 64, 130), (25, 40, 48, 31),
         (7, 1, 5000, 40), (300, 33, 64, 70), (2, 200, 4, 18)]  # fmt: skip


def checked(product: QuantizedMatmulCall, dtype: str = "f32") -> None:
    assert wrong(product.call.run(), product.expected, product.magnitude, dtype) == ""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes: tuple[int, int, int, int], by_column: bool, kind: str, dtype: str) -> None:
    rows, groups, group, columns = sizes
    if kind == "s4" and groups * group % 2:
        group += 1
    product = quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind, dtype=dtype, result=dtype)
    checked(with_rounded_source(product, group), dtype)


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sums_of_integers_are_exact(sizes: tuple[int, int, int, int], by_column: bool, kind: str) -> None:
    rows, groups, group, columns = sizes
    if kind == "s4" and groups * group % 2:
        group += 1
    product = quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind)
    product = with_whole_numbers(product, group)
    np.testing.assert_array_equal(product.call.run(), product.expected.astype(np.float32))


@pytest.mark.parametrize("scales", DTYPES)
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", [(13, 1, 16, 16, 2), (40, 5, 64, 64, 100), (9, 3, 128, 32, 77), (12, 40, 64, 16, 33)],
                         ids=str)  # fmt: skip
def test_scales_of_groups(sizes: tuple[int, int, int, int, int], by_column: bool, kind: str, scales: str) -> None:
    """Those of the weights are as large, or a multiple."""
    rows, groups, group, of_source, columns = sizes
    product = quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind, groups=groups,
                               scales=scales)  # fmt: skip
    checked(with_rounded_source(product, of_source))


@settings(max_examples=4 * settings().max_examples)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 70), st.integers(1, 140), st.booleans(),
       st.sampled_from(list(DTYPES)), st.permutations([0, 1]), st.permutations([0, 1]),
       st.sampled_from(GROUPED))  # fmt: skip
def test_random_products(rows, groups, half, columns, by_column, dtype, source_layout, result_layout, kind) -> None:
    product = quantized_matmul(rows, groups * 2 * half, columns, by_column=by_column, dtype=dtype, kind=kind,
                               layouts=(source_layout, result_layout))  # fmt: skip
    checked(with_rounded_source(product, 2 * half))


@pytest.mark.parametrize("by_column", [False, True])
def test_parts_of_buffers(by_column: bool) -> None:
    """The last ones end where the buffer does: nothing behind it is read."""
    generator = np.random.default_rng(3)
    source = generator.standard_normal((28, 50)).astype(np.float32)
    weights = generator.integers(-128, 128, (60, 90), np.int8)
    product = quantized_matmul(14, 32, 47)
    product.source = source[:28:2, 18:]
    product.weights = weights[28:, 43:] if not by_column else weights[13:60, 58:].T
    product.call.operands[:] = [source, weights]
    spec = {"src_strides": [100, 1], "src_offset": 18, "src_elements": 1400, "weights_elements": 5400}
    if by_column:
        spec |= {"weights_strides": [1, 90], "weights_offset": 13 * 90 + 58}
    else:
        spec |= {"weights_strides": [90, 1], "weights_offset": 28 * 90 + 43}
    product.call.spec |= spec
    checked(with_rounded_source(product, 16))


def test_what_follows() -> None:
    product = with_rounded_source(quantized_matmul(14, 128, 70, dtype="bf16", groups=2, kind="s4"), 64)
    bias = np.random.default_rng(1).standard_normal(70).astype(np.float32)
    product.call.operands.append(bias)
    product.call.spec["bias_type"] = "f32"
    product.call.eltwise("relu")
    assert wrong(product.call.run(), np.maximum(product.expected + bias, 0), product.magnitude + 1) == ""


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_none_in_its_row(special: float, kind: str, by_column: bool) -> None:
    """Also where its weight is 0; and nobody else's result has it."""
    product = with_rounded_source(quantized_matmul(14, 130, 84, by_column=by_column, kind=kind), 26)
    source, weights = product.call.operands
    source[3, 70] = special
    (weights.T if by_column else weights)[70, ::2] = 0
    found = product.call.run()
    assert np.isnan(found[3]).all()
    assert np.isfinite(np.delete(found, 3, axis=0)).all()


def test_zeros_and_tiny_numbers_are_zeros() -> None:
    product = quantized_matmul(12, 64, 40)
    source = product.call.operands[0]
    source[0] = 0
    source[1] = np.float32(1e-42)
    source[2, 32:] = 0
    product.source = source.copy()
    product = with_rounded_source(product, 32)
    found = product.call.run()
    assert (found[:2] == 0).all()
    assert wrong(found, product.expected, product.magnitude) == ""
    source[3] = np.float32(1.5 * SMALLEST)
    assert (product.call.run()[3] != 0).any()


def test_the_same_whatever_thread_computes_it() -> None:
    made = [with_rounded_source(quantized_matmul(97 + n, 640, 2000 - 7 * n, by_column=n % 2 == 1, seed=n,
                                                 kind=GROUPED[n % 2]), 64) for n in range(5)]  # fmt: skip
    functions = [product.call.compiled() for product in made]
    alone = [np.asarray(f(*product.call.operands)) for f, product in zip(functions, made, strict=True)]

    def work(number: int) -> list[np.ndarray]:
        return [np.asarray(functions[number](*made[number].call.operands)) for _ in range(10)]

    with ThreadPoolExecutor(5) as pool:
        for number, results in enumerate(pool.map(work, range(5))):
            product = made[number]
            assert wrong(product.call.logical(results[0]), product.expected, product.magnitude) == ""
            for result in results:
                np.testing.assert_array_equal(result, alone[number])


def test_arithmetic() -> None:
    planned = with_rounded_source(quantized_matmul(33, 64, 64, kind="s4", groups=4), 16).call.planned()
    assert not isinstance(planned, Refusal)
    features = this_machine().features
    best = next((name for name in ("avx512_vnni", "avx_vnni", "avx2") if name in features), "plain")
    assert planned.implementation == f"narrow:{best}:s4:groups:integers"


@pytest.mark.parametrize(
    ("product", "group", "sentence"),
    [
        (quantized_matmul(9, 64, 8, kind="f32"), 64, "src: expected weights of s4 or s8 where it is rounded"),
        (with_zeros(quantized_matmul(9, 64, 8), None, 3.0), 64, "src: expected weights without zero points"),
        (
            with_zeros(packed(9, 128, 64, block=2, by_column=True), None, 8.0),
            64,
            "src: expected weights that are not packed",
        ),
        (quantized_matmul(9, 64, 8, groups=2), 64, "scales: expected groups of a multiple of the 64 numbers"),
        (quantized_matmul(2, 1 << 17, 2), 1 << 17, "src: expected groups of at most 65536 numbers, got 131072"),
    ],
    ids=["f32", "zero points", "packed", "groups", "long groups"],
)
def test_refusals(product: QuantizedMatmulCall, group: int, sentence: str) -> None:
    refused = product.call.planned(src_group=group)
    assert isinstance(refused, Refusal)
    assert refused.sentence.startswith(f"own.narrow_product: {sentence}")


@pytest.mark.parametrize("group", [0, -4, 9, 128])
def test_a_group_that_does_not_divide_the_rows_is_an_error(group: int) -> None:
    asked = quantized_matmul(9, 64, 8).call.asked() | {"src_group": group}
    with pytest.raises(ValueError, match=f"attribute 'src_group': expected a divisor of 64, got {group}"):
        _kernels.plan("hlo_dispatch.own.narrow_product", asked)
