"""Weight-only quantized matmul on prepacked integers (kernels/quantized_matmul/packed_*) against float64."""

from __future__ import annotations

import numpy as np
import pytest
from prepacked_calls import prepacked_call_of, run_prepacked
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

from hlo_dispatch.process.machine import this_machine

pytestmark = [
    pytest.mark.any_python,
    pytest.mark.skipif("avx512_vnni" not in this_machine().features, reason="weights are packed for AVX512-VNNI"),
]

# One of everything; odd; no multiple of a panel, of a vector, of a step; each way to multiply: rows that are split,
# those that are widened and as many as have several pieces; more rows of weights than are widened at once.
SIZES = [(1, 1, 1), (1, 3, 130), (2, 70, 63), (1, 64, 64), (1, 1000, 333), (2, 1027, 65), (3, 7, 5), (5, 64, 257),
         (8, 513, 97), (9, 1000, 77), (13, 1030, 66), (32, 100, 1030), (50, 65, 63), (301, 70, 30)]  # fmt: skip
GROUPS = [(1, 1, 16, 2), (1, 3, 32, 300), (2, 24, 128, 770), (1, 5, 80, 434), (2, 3, 176, 65), (6, 3, 48, 50),
          (9, 5, 16, 77), (32, 2, 64, 131), (40, 45, 48, 31), (17, 32, 128, 129)]  # fmt: skip


def results(product: QuantizedMatmulCall) -> np.ndarray:
    form = prepacked_call_of(product.call)
    assert form is not None, "there is a layout for these"
    return run_prepacked(product.call, form)


def checked(product: QuantizedMatmulCall, dtype: str = "f32") -> None:
    assert wrong(results(product), product.expected, product.magnitude, dtype) == ""


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes: tuple[int, int, int], by_column: bool, kind: str) -> None:
    checked(quantized_matmul(*sizes, by_column=by_column, kind=kind))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("sizes", [(1, 70, 130), (3, 129, 64), (20, 600, 100)], ids=str)
def test_sources_in_half_precision(sizes: tuple[int, int, int], kind: str, dtype: str) -> None:
    checked(quantized_matmul(*sizes, kind=kind, dtype=dtype, result=dtype), dtype)


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("layout", [(0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("sizes", GROUPS, ids=str)
def test_scales_of_groups(
    sizes: tuple[int, int, int, int], layout: tuple[int, int], by_column: bool, kind: str
) -> None:
    rows, groups, group, columns = sizes
    checked(quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind, groups=groups,
                             scales_layout=layout))  # fmt: skip


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("zeros", ["number", "groups"])
@pytest.mark.parametrize("sizes", [(1, 3, 32, 300), (5, 7, 48, 2), (40, 4, 32, 130)], ids=str)
def test_zero_points(sizes: tuple[int, int, int, int], zeros: str, kind: str) -> None:
    rows, groups, group, columns = sizes
    product = quantized_matmul(rows, groups * group, columns, kind=kind, groups=groups)
    values = np.random.default_rng(4).standard_normal((groups, product.weights.shape[1])).astype(np.float32)
    checked(with_zeros(product, None, 3.5) if zeros == "number" else with_zeros(product, values))


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2, 64, 100), (13, 3, 8, 33), (26, 40, 80, 130), (100, 2, 512, 64)], ids=str)
def test_rounded_sources(sizes: tuple[int, int, int, int], by_column: bool, kind: str) -> None:
    rows, groups, group, columns = sizes
    shape = (rows, groups * group, columns)
    checked(with_rounded_source(quantized_matmul(*shape, by_column=by_column, kind=kind), group))
    whole = with_whole_numbers(quantized_matmul(*shape, by_column=by_column, kind=kind), group)
    assert np.array_equal(results(whole), whole.expected)


def test_rounded_sources_and_scales_of_groups() -> None:
    product = quantized_matmul(30, 256, 131, kind="s4", groups=4)
    checked(with_rounded_source(product, 32))


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_numbers_of_very_different_size(rows: int, kind: str) -> None:
    """A group's largest number, where its weights are 0, takes nothing from the others."""
    product = quantized_matmul(rows, 192, 96, kind=kind, groups=3)
    source, weights = product.call.operands[0], product.call.operands[1]
    for place, size in ((5, 1e3), (70, 1e9), (130, 3e38)):
        source[:, place] = size
        weights[place] = np.zeros(weights.shape[1], weights.dtype)
    source[:, 131:] *= 1e-30
    product.source, product.weights = source, weights
    checked(product)


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("rows", [1, 2])
def test_numbers_whose_scale_is_no_normal_number(rows: int, kind: str) -> None:
    """The numbers themselves and their products are normal numbers."""
    product = quantized_matmul(rows, 192, 96, kind=kind, groups=3)
    source = product.call.operands[0]
    source[:, 64:] *= np.float32(1e-34)
    source[:, :64] = 0
    product.source = source
    assert (np.abs(results(product) - product.expected) <= 1e-5 * product.magnitude).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [1, 5])
def test_values_that_are_not_finite(rows: int, value: float) -> None:
    """As a product in f32 has them: the number times each column's weight."""
    product = quantized_matmul(rows, 130, 70, kind="s8")
    product.call.operands[0][0, 77] = value
    with np.errstate(invalid="ignore"):
        expected = product.call.operands[0].astype(np.float64) @ product.weights.astype(np.float64)
    found = results(product)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros(dtype: str) -> None:
    product = quantized_matmul(2, 100, 70, kind="s4", dtype=dtype)
    product.call.operands[0][...] = 0
    assert not results(product).any()


def test_no_layout() -> None:
    """Bytes with an order of their own, and groups of the source that are no whole steps, are read as they lie."""
    assert prepacked_call_of(with_zeros(packed(1, 64, 66, block=2, by_column=False), None, 8.0).call) is None
    assert prepacked_call_of(with_rounded_source(quantized_matmul(3, 60, 16), 12).call) is None
    assert prepacked_call_of(quantized_matmul(3, 60, 16, kind="bf16").call) is None
