"""Validation: against stock, against float64 where they differ, with NaN and infinities."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hlo_dispatch.autotune.compare.validation import difference, is_finite, judge
from hlo_dispatch.autotune.run.inputs import KINDS, random_inputs
from hlo_dispatch.ir.shape import row_major
from matching import parsed

F32 = np.linspace(-1, 1, 1001, dtype="float32")


def changed(at: int, to: float, array: np.ndarray = F32) -> np.ndarray:
    copy = array.copy()
    copy[at] = to
    return copy


def nobody():
    raise AssertionError("float64 was asked for")


def test_what_agrees_needs_no_float64() -> None:
    assert not judge([F32], [F32 * np.float32(1 + 1e-7)], 1e-6, nobody)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_to_be_the_same(dtype, value: float) -> None:
    array = F32.astype(dtype)
    spoilt = changed(3, value, array)
    assert not difference([spoilt], [spoilt.copy()], 1e-6)
    for expected, got in ((array, spoilt), (spoilt, array), (spoilt, changed(4, value, array))):
        assert difference([expected], [got], 1e-6).value == np.inf
    assert is_finite([array])
    assert not is_finite([array, spoilt])


def test_the_worst_result_counts() -> None:
    found = difference([F32, F32, F32], [F32, changed(500, 0.25), changed(500, 0.125)], 1e-3)
    assert (found.result, found.value) == (1, 0.25)
    assert found


@pytest.mark.parametrize("dtype", ["float32", "complex64", ml_dtypes.bfloat16])
def test_a_difference_is_relative_to_the_largest_value(dtype) -> None:
    expected, got = (F32 * 100).astype(dtype), changed(500, 1.0, F32 * 100).astype(dtype)
    assert difference([expected], [got], 0).value == pytest.approx(0.01)


def test_float64_decides_who_is_right() -> None:
    exact = np.linspace(-1, 1, 1001)
    right, wrong = exact.astype("float32"), changed(10, 0.5)
    assert not judge([wrong], [right], 1e-6, lambda: [exact]), "stock is wrong, which is not the kernel's fault"
    verdict = judge([right], [wrong], 1e-6, lambda: [exact])
    assert verdict
    assert verdict.value > 0.5
    assert judge([right], [wrong], 1e-6, lambda: None), "nobody can tell: refused"


def test_nobody_has_to_be_much_better_than_stock() -> None:
    exact = np.linspace(-1, 1, 1001)
    coarse, other = exact + 3e-4, exact - 5e-4
    assert not judge([coarse], [other], 1e-5, lambda: [exact])
    assert judge([coarse], [exact - 7e-4], 1e-5, lambda: [exact])


def test_whole_numbers() -> None:
    expected = np.arange(1000) % 2 == 0
    got = expected.copy()
    got[:5] = ~got[:5]
    assert not difference([expected], [got], 0), "a comparison of two equal values may fall either way"
    got[:50] = ~expected[:50]
    assert difference([expected], [got], 0)


SHAPES = [row_major(kind, (64, 64)) for kind in ("f32", "bf16", "f64", "c64", "pred", "s32", "u8")]


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_what_the_shapes_say(kind: str) -> None:
    module = parsed("ENTRY main { ROOT x = f32[2]{0} parameter(0) }")
    arrays = random_inputs(module, SHAPES, 1, kind)
    names = ["float32", "bfloat16", "float64", "complex64", "bool", "int32", "uint8"]
    assert [array.dtype.name for array in arrays] == names
    assert all(array.shape == (64, 64) and len(np.unique(array)) > 1 for array in arrays)
    again = random_inputs(module, SHAPES, 1, kind)
    assert all((one == other).all() for one, other in zip(arrays, again, strict=True))
    if kind == "positive":
        assert all((array[..., :3].astype(float) > 0).all() for array in arrays[:3])


def test_large_inputs_repeat_no_row() -> None:
    module = parsed("ENTRY main { ROOT x = f32[2]{0} parameter(0) }")
    (array,) = random_inputs(module, [row_major("f32", (4096, 512))], 1)
    assert len({row.tobytes() for row in array}) == 4096


@pytest.mark.parametrize(
    ("call", "property_"),
    [
        ("cholesky(x), lower=true", lambda a: np.linalg.eigvalsh(a.astype(float)).min() > 0.5),
        ("triangular-solve(x, x), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
         lambda a: np.linalg.cond(np.tril(a)) < 100),
        ('custom-call(x), custom_call_target="lapack_spotrf_ffi"', lambda a: np.allclose(a, a.T)),
    ],
)  # fmt: skip
def test_matrices_are_valid_for_what_is_done_with_them(call: str, property_) -> None:
    module = parsed(f"ENTRY main {{ x = f32[48,48]{{1,0}} parameter(0)\n ROOT r = f32[48,48]{{1,0}} {call} }}")
    (matrix,) = random_inputs(module, [row_major("f32", (48, 48))], 5)
    assert property_(matrix)
