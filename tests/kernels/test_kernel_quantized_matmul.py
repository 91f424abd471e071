"""Weight-only quantized matmul against float64: sizes, both orders of the weights, types, epilogues."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_matmul_calls import (
    DTYPES,
    GROUPED,
    WEIGHTS,
    QuantizedMatmulCall,
    packed,
    quantized_matmul,
    random_weights,
    with_zeros,
    wrong,
)

from environment import clean_environment
from hlo_dispatch import _kernels
from hlo_dispatch.errors import Refusal
from hlo_dispatch.process.machine import ISA_VARIABLE, this_machine
from processor import needs_avx512

pytestmark = pytest.mark.any_python

# One of everything; odd; no multiple of a vector, a line, a tile; several pieces; as many rows as f32 may have.
SIZES = [(1, 1, 1), (1, 1, 300), (1, 300, 1), (3, 7, 5), (1, 65, 63), (2, 129, 1000), (5, 64, 257), (9, 1000, 77),
         (1, 768, 3072), (4, 2000, 2048), (32, 100, 1030), (17, 71, 4097), (1, 206, 434), (2, 112, 178), (6, 97, 50),
         (8, 33, 6000)]  # fmt: skip
# More rows than that: odd; parts of tiles, in both directions; more than are widened at once; pieces of rows.
MANY = [(33, 1, 1), (50, 65, 63), (33, 2049, 40), (100, 17, 1030), (13, 4500, 33), (301, 70, 30)]
ROWS = st.one_of(st.just(1), st.integers(1, 32))
LENGTHS = st.one_of(st.integers(1, 20), st.integers(1, 300), st.sampled_from([15, 16, 17, 63, 64, 65, 1023, 1500]))


def checked(product: QuantizedMatmulCall, dtype: str = "f32") -> None:
    assert wrong(product.call.run(), product.expected, product.magnitude, dtype) == ""


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes: tuple[int, int, int], by_column: bool, kind: str) -> None:
    checked(quantized_matmul(*sizes, by_column=by_column, kind=kind))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", MANY, ids=str)
def test_many_rows_of_integers(sizes: tuple[int, int, int], by_column: bool, kind: str, dtype: str) -> None:
    checked(quantized_matmul(*sizes, by_column=by_column, kind=kind, dtype=dtype, result=dtype), dtype)


@needs_avx512
@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_of_many_rows(dtype: str) -> None:
    """Integers are exact in bf16, so a source of bf16 is multiplied so where that was measured to be faster."""
    planned = quantized_matmul(33, 64, 64, dtype=dtype, kind="s4", groups=4).call.planned()
    assert not isinstance(planned, Refusal)
    arithmetic = {"avx512"} | ({"avx512_bf16"} & this_machine().features if dtype == "bf16" else set())
    assert planned.implementation in {f"narrow:{one}:s4:groups:tiles" for one in arithmetic}


@settings(max_examples=6 * settings().max_examples)
@given(ROWS, LENGTHS, LENGTHS, st.booleans(), st.sampled_from(list(DTYPES)), st.sampled_from(list(DTYPES)),
       st.permutations([0, 1]), st.permutations([0, 1]), st.sampled_from(WEIGHTS))  # fmt: skip
def test_random_products(rows, depth, columns, by_column, dtype, result, source_layout, result_layout, kind) -> None:
    layouts = (source_layout, result_layout)
    product = quantized_matmul(rows, depth, columns, by_column=by_column, dtype=dtype, result=result, layouts=layouts,
                             kind=kind)  # fmt: skip
    checked(product, result)


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 16, 2), (1, 3, 32, 300), (2, 24, 128, 770), (9, 5, 16, 77), (4, 7, 48, 1),
                                   (1, 5, 80, 434), (6, 3, 48, 50), (32, 2, 64, 131), (17, 32, 128, 1029)],
                         ids=str)  # fmt: skip
def test_scales_of_groups(sizes: tuple[int, int, int, int], by_column: bool, kind: str) -> None:
    rows, groups, group, columns = sizes
    checked(quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind, groups=groups))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("sizes", [(33, 1, 16, 2), (50, 5, 64, 100), (13, 45, 48, 31), (100, 70, 32, 64)], ids=str)
def test_scales_of_groups_and_many_rows(
    sizes: tuple[int, int, int, int], by_column: bool, kind: str, dtype: str
) -> None:
    """Groups may begin in one part of what is widened at once and end in the next."""
    rows, groups, group, columns = sizes
    checked(quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind, groups=groups, dtype=dtype))


@settings(max_examples=4 * settings().max_examples)
@given(ROWS, st.integers(1, 9), st.integers(1, 9), LENGTHS, st.booleans(), st.sampled_from(list(DTYPES)),
       st.sampled_from(list(DTYPES)), st.permutations([0, 1]), st.sampled_from(GROUPED))  # fmt: skip
def test_random_groups(rows, groups, sixteens, columns, by_column, dtype, scales, scales_layout, kind) -> None:
    product = quantized_matmul(rows, groups * sixteens * 16, columns, by_column=by_column, dtype=dtype, kind=kind,
                             groups=groups, scales=scales, scales_layout=scales_layout)  # fmt: skip
    checked(product)


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("zeros", ["number", "one", "columns", "groups"])
@pytest.mark.parametrize("sizes", [(1, 1, 16, 2), (1, 3, 32, 300), (5, 7, 48, 1), (12, 2, 64, 131), (40, 4, 32, 130)],
                         ids=str)  # fmt: skip
def test_zero_points(sizes: tuple[int, int, int, int], zeros: str, by_column: bool, kind: str) -> None:
    rows, groups, group, columns = sizes
    product = quantized_matmul(rows, groups * group, columns, by_column=by_column, kind=kind, groups=groups)
    dims = {"one": (1, 1), "columns": (1, product.weights.shape[1]), "groups": (groups, product.weights.shape[1])}
    values = None if zeros == "number" else np.random.default_rng(4).standard_normal(dims[zeros]).astype(np.float32)
    checked(with_zeros(product, values, 3.5 if zeros == "number" else 0.0))


def test_zero_points_without_scales_and_ahead_of_what_follows() -> None:
    product = quantized_matmul(3, 64, 50, kind="s8")
    with_zeros(product, np.random.default_rng(4).integers(-5, 5, (2, 50)).astype(np.float16))
    bias = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    product.call.operands.append(bias)
    product.call.spec["bias_type"] = "f32"
    assert wrong(product.call.run(), product.expected + bias, product.magnitude + 1) == ""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("block", "by_column"), [(2, False), (2, True), (4, True), (32, True), (64, True)])
@pytest.mark.parametrize("sizes", [(1, 1, 64, 2), (2, 3, 64, 300), (1, 2, 128, 1), (9, 1, 64, 34), (40, 2, 64, 130)],
                         ids=str)  # fmt: skip
def test_packed_bytes(sizes: tuple[int, int, int, int], block: int, by_column: bool, dtype: str) -> None:
    rows, groups, group, columns = sizes
    columns += 0 if by_column else columns % 2
    options = {"block": block, "by_column": by_column, "dtype": dtype}
    checked(with_zeros(packed(rows, groups * group, columns, groups=groups, **options), None, 8.0))
    zeros = np.random.default_rng(4).integers(0, 16, (groups, columns)).astype(np.float32)
    checked(with_zeros(packed(rows, groups * group, columns, groups=groups, layout=(1, 0), **options), zeros))
    checked(packed(rows, groups * group, columns, **options))


def test_scales_ahead_of_what_follows() -> None:
    """And in a batch of one, as matches with numbers for each row are."""
    product = quantized_matmul(3, 64, 50, groups=2, kind="s4")
    bias = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    call = product.call
    call.operands.append(bias)
    call.spec["bias_type"] = "f32"
    for name in ("src", "weights", "scales", "dst"):
        dims = call.spec[f"{name}_dims"]
        call.spec[f"{name}_dims"] = [1, *dims]
        call.spec[f"{name}_strides"] = [dims[0] * dims[1], *call.spec[f"{name}_strides"]]
    call.eltwise("relu")
    assert wrong(call.run(), np.maximum(product.expected + bias, 0), product.magnitude + 1) == ""


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", DTYPES)
def test_what_follows(kind: str, by_column: bool) -> None:
    """Scale, bias, residual and a relu, in half precision, too."""
    product = quantized_matmul(3, 200, 1100, by_column=by_column, dtype=kind, result=kind)
    generator = np.random.default_rng(1)
    scale, bias, residual = (generator.random(dims).astype(DTYPES[kind]) for dims in ((1, 1100), (1, 1100), (3, 1100)))
    call = product.call
    for algorithm, operand in (("mul", scale), ("add", bias), ("add", residual)):
        call.operands.append(operand)
        dims = list(operand.shape)
        post_op = {"kind": "binary", "algorithm": algorithm, "type": kind, "dims": dims, "strides": [dims[1], 1]}
        call._append(post_op)
    call.eltwise("relu")
    wide = [operand.astype(np.float64) for operand in (scale, bias, residual)]
    expected = np.maximum(product.expected * wide[0] + wide[1] + wide[2], 0)
    assert wrong(call.run(), expected, product.magnitude * wide[0] + 2, kind) == ""


def test_a_bias_and_rows_in_a_batch() -> None:
    product = quantized_matmul(6, 40, 90)
    bias = np.random.default_rng(2).standard_normal(90).astype(np.float32)
    call = product.call
    call.operands.append(bias)
    call.spec |= {"bias_type": "f32", "src_dims": [2, 3, 40], "src_strides": [120, 40, 1]}
    call.spec |= {"weights_dims": [1, 40, 90], "weights_strides": [3600, 90, 1]}
    call.spec |= {"dst_dims": [2, 3, 90], "dst_strides": [270, 90, 1]}
    assert wrong(call.run(), product.expected + bias, product.magnitude + 1) == ""


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("by_column", [False, True])
def test_parts_of_buffers(by_column: bool, kind: str) -> None:
    """The last ones end where the buffer does: nothing behind it is read."""
    generator = np.random.default_rng(3)
    source = generator.standard_normal((4, 50)).astype(np.float32)
    weights = random_weights(generator, kind, (40, 70))
    product = quantized_matmul(2, 33, 27, kind=kind)
    if kind == "s4":
        return checked_part_of_pairs(by_column=by_column)
    product.source = source[1:4:2, 17:]
    product.weights = weights[7:, 43:] if not by_column else weights[13:, 37:].T[:, :27]
    product.call.operands[:] = [source, weights]
    spec = {"src_strides": [100, 1], "src_offset": 67, "src_elements": 200, "weights_elements": 2800}
    if by_column:
        spec |= {"weights_strides": [1, 70], "weights_offset": 13 * 70 + 37}
    else:
        spec |= {"weights_strides": [70, 1], "weights_offset": 7 * 70 + 43}
    product.call.spec |= spec
    checked(product)


def checked_part_of_pairs(*, by_column: bool) -> None:
    """Where a byte begins."""
    weights = random_weights(np.random.default_rng(3), "s4", (40, 70))
    product = quantized_matmul(2, 32, 26, kind="s4")
    product.weights = weights[8:, 44:] if not by_column else weights[14:, 38:].T[:, :26]
    product.call.operands[1] = weights
    offset = 14 * 70 + 38 if by_column else 8 * 70 + 44
    spec = {"weights_strides": [1, 70] if by_column else [70, 1], "weights_offset": offset, "weights_elements": 2800}
    product.call.spec |= spec
    checked(product)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize(("rows", "dtype"), [(5, "f32"), (9, "f32"), (9, "bf16")])
def test_what_is_no_number_stays_none(rows: int, dtype: str, special: float, kind: str, by_column: bool) -> None:
    """Also where its weight is 0; and nobody else's result has it."""
    product = quantized_matmul(rows, 77, 83, by_column=by_column, kind=kind, dtype=dtype)
    source, weights = product.call.operands
    source[3, 70] = special
    (weights.T if by_column else weights)[70, ::2] = 0
    found = product.call.run()
    assert np.isnan(found[3, ::2]).all()
    assert not np.isfinite(found[3]).any()
    assert np.isfinite(np.delete(found, 3, axis=0)).all()


@pytest.mark.parametrize("rows", [1, 97])
def test_the_same_whatever_thread_computes_it(rows: int) -> None:
    """Alone, again, and two and more at once."""
    kinds = WEIGHTS if rows == 1 else GROUPED
    made = [quantized_matmul(rows + n % 5, 600 + n, 2000 - 7 * n, by_column=n % 2 == 1, seed=n,
                             kind=kinds[n % len(kinds)]) for n in range(9)]  # fmt: skip
    functions = [product.call.compiled() for product in made]
    alone = [np.asarray(f(*product.call.operands)) for f, product in zip(functions, made, strict=True)]

    def work(number: int) -> list[np.ndarray]:
        return [np.asarray(functions[number](*made[number].call.operands)) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        for number, results in enumerate(pool.map(work, range(8))):
            product = made[number]
            assert wrong(product.call.logical(results[0]), product.expected, product.magnitude) == ""
            for result in results:
                np.testing.assert_array_equal(result, alone[number])


@pytest.mark.any_processor  # it sets the ISA caps itself
@pytest.mark.parametrize(
    ("name", "most"),
    [("SSE41", "plain"), ("AVX2", "avx2"), ("AVX512_CORE", "avx512"), ("AVX512_CORE_VNNI", "avx512_vnni")],
)
def test_lesser_instruction_sets(name: str, most: str) -> None:
    worker = Path(__file__).with_name("quantized_matmul_cases.py")
    paths = {"PYTHONPATH": ":".join([str(worker.parent), str(worker.parents[1])]), ISA_VARIABLE: name}
    done = subprocess.run([sys.executable, str(worker)], env=clean_environment(**paths), capture_output=True, text=True,
                          check=False, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    *implementations, wrong_ones = done.stdout.split("\n", 2)
    levels = ("plain", "avx2", "avx512", "avx512_vnni")
    assert all(levels.index(implementation.split(":")[1]) <= levels.index(most) for implementation in implementations)
    assert not wrong_ones


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"weights_type": "f32", "src_dims": [33, 8], "src_strides": [8, 1], "dst_dims": [33, 6],
          "dst_strides": [6, 1]}, "dst: expected at most 32 rows of products with f32 or bf16, got 33"),
        ({"src_dims": [3, 5, 8], "weights_dims": [3, 8, 6], "dst_dims": [3, 5, 6], "src_strides": [40, 8, 1],
          "weights_strides": [48, 6, 1], "dst_strides": [30, 6, 1]}, "weights: expected one matrix"),
        ({"weights_type": "f16"}, "weights: expected s4, s8, bf16 or f32, got f16"),
        ({"weights_type": "s4", "weights_dims": [8, 5], "weights_strides": [5, 1], "dst_dims": [5, 5],
          "dst_strides": [5, 1]}, "weights: expected s4 in rows or columns of an even number"),
        ({"weights_type": "s4", "weights_strides": [7, 1], "weights_offset": 0, "weights_elements": 56},
         "weights: expected s4 in rows or columns of an even number"),
        ({"scales_type": "f32", "scales_dims": [1, 6], "scales_strides": [6, 1]},
         "scales: expected groups of a multiple of 16 rows, got 8"),
        ({"weights_type": "f32", "scales_type": "f32", "scales_dims": [1, 6], "scales_strides": [6, 1],
          "src_dims": [5, 16], "src_strides": [16, 1], "weights_dims": [16, 6]},
         "scales: expected weights of s4 or s8"),
        ({"weights_type": "u8", "weights_block": 8}, "weights: expected blocks of 8 along what is summed up"),
        ({"weights_type": "f32", "weights_zero": 1.0}, "zeros: expected weights of s4, s8 or u8"),
        ({"weights_strides": [12, 2], "weights_offset": 0, "weights_elements": 100},
         "weights: expected rows or columns whose elements lie side by side"),
        ({"post_op_0": {"kind": "eltwise", "algorithm": "gelu_erf", "alpha": 0.0, "beta": 0.0}},
         "hlo-dispatch"),
        ({"post_op_0": {"kind": "sum"}}, "post_op_0.kind: "),
    ],
)  # fmt: skip
def test_what_there_is_no_code_for_is_a_refusal(changes: dict[str, object], sentence: str) -> None:
    refused = quantized_matmul(5, 8, 6).call.planned(**changes)
    assert isinstance(refused, Refusal)
    assert refused.code == "kernel-unsupported"
    assert refused.sentence.startswith(f"own.narrow_product: {sentence}")


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"weights_type": "u8"}, "attribute 'weights_type': expected s4, s8, bf16 or f32, got 'u8'"),
        (
            {"scales_type": "f32", "scales_dims": [3, 6], "scales_strides": [6, 1]},
            "scales: expected one for each of 6 columns and each of some groups of 8 rows, got 3 times 6",
        ),
        ({"weights_block": 2}, "attribute 'weights_block': expected weights of u8, got s8"),
        ({"weights_type": "u8", "weights_block": 3}, "attribute 'weights_block': expected an even number, at least 2"),
        (
            {"zeros_type": "f32", "zeros_dims": [3, 6], "zeros_strides": [6, 1]},
            "zeros: expected one for each of 6 columns and each of some groups",
        ),
        (
            {"zeros_type": "f32", "zeros_dims": [2, 5], "zeros_strides": [5, 1]},
            "zeros: expected one for each of 6 columns and each of some groups",
        ),
        ({"weights_dims": [9, 6]}, "their sizes do not fit"),
        ({"weights_dims": [8], "weights_strides": [1]}, "expected as many dimensions in all"),
        ({"weights_dims": [8, 0]}, "their sizes do not fit"),
        ({"weights_strides": [0, 1]}, "weights: expected strides >= 1, got 0"),
        ({"weights_strides": [7, 1]}, "weights: expected a dense array"),
        ({"weights_offset": 1, "weights_elements": 48}, "weights: expected 48 elements behind offset 1"),
        ({"weights_reversed": 1}, "attribute 'weights_reversed': expected weights with spatial dimensions"),
        ({"scratch": -1}, "attribute 'scratch': expected at least 0, got -1"),
        ({"library": "0"}, "this executable was planned for hlo-dispatch 0"),
    ],
    ids=str,
)
def test_bad_attributes_are_errors_that_name_them(changes: dict[str, object], fragment: str) -> None:
    with pytest.raises((ValueError, ImportError), match=re.escape(fragment)):
        _kernels.plan("hlo_dispatch.own.narrow_product", quantized_matmul(5, 8, 6).call.asked() | changes)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("s4", "48 bytes of s4"), ("s8", "48 bytes of s8"), ("bf16", "96 bytes of bf16"), ("f32", "192 bytes of f32")],
)
def test_a_buffer_of_another_type(kind: str, wanted: str) -> None:
    product = quantized_matmul(2, 8, 6, kind=kind)
    function = product.call.compiled()
    source, weights = product.call.operands
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"weights: expected {wanted}"):
        function(source, weights.astype(np.float16))
