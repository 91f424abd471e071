"""Weight prepacking of oneDNN: results equal those of plain weights, for all layouts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import test_kernel_convolution as convolutions
import test_kernel_deconvolution as deconvolutions
import test_kernel_matmul as products
from calls import Call, Window, assert_close, convolution_call, convolve, matmul_call, random_values, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from prepacked_calls import packing, prepacked_call_of, reading, run_prepacked, with_prepacked, written

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels
from hlo_dispatch.vendor.prepacking import prepacked_call
from processor import skip_emulated, skip_without

pytestmark = pytest.mark.any_python

DTYPES = ["f32", "bf16"]


def check(call: Call, expected: np.ndarray, magnitude: np.ndarray, dtype: str) -> None:
    """The call on packed weights against float64, and bit for bit against the call that packs them each time, which has
    a layout of its own where the product is one row of halves."""
    if isinstance(kernels.plan(call.name, call.spec), Refusal):
        return
    form = prepacked_call_of(call)
    if form is None:
        return
    found = run_prepacked(call, form)
    assert_close(found, expected, magnitude, dtype)
    if call.name == "onednn.matmul" and dtype != "f32" and set(call.result_dims[:-1]) == {1}:
        return
    call.spec["weights_format"] = "any"
    planned = kernels.plan(call.name, call.spec)
    assert not isinstance(planned, Refusal), planned
    np.testing.assert_array_equal(found, call.run())


@st.composite
def turned_convolutions(draw: st.DrawFn, dtype: str):
    call, source, weights, window, bias = draw(convolutions.convolutions(dtype))
    values, turned = weights.values, draw(st.booleans())
    if turned:
        call.spec["weights_reversed"] = 1
        values = np.flip(values, tuple(range(2 - source.values.ndim, 0)))
    return call, source.values, values, window, bias


def check_convolution(case, dtype: str) -> None:
    call, source, weights, window, bias = case
    expected, magnitude = convolve(source, weights, window), convolve(np.abs(source), np.abs(weights), window)
    if bias is not None:
        shape = (1, -1) + (1,) * (expected.ndim - 2)
        expected = expected + bias.astype(np.float64).reshape(shape)
        magnitude = magnitude + np.abs(bias).reshape(shape)
    check(call, expected, magnitude, dtype)


@pytest.mark.any_avx512
@settings(max_examples=100, deadline=None)
@given(turned_convolutions("f32"))
def test_any_f32_convolution(case) -> None:
    check_convolution(case, "f32")


@settings(max_examples=60, deadline=None)
@given(turned_convolutions("bf16"))
def test_any_bf16_convolution(case) -> None:
    check_convolution(case, "bf16")


def check_deconvolution(case, dtype: str) -> None:
    source, weights, window, turned = case
    call = deconvolutions.deconvolution_call(source, weights, window, reverse=turned)
    expected = deconvolutions.deconvolve(source.values, weights.values, window, turned)
    magnitude = deconvolutions.deconvolve(np.abs(source.values), np.abs(weights.values), window, turned)
    check(call, expected, magnitude, dtype)


@pytest.mark.any_avx512
@settings(max_examples=80, deadline=None)
@given(deconvolutions.deconvolutions("f32"))
def test_any_f32_deconvolution(case) -> None:
    check_deconvolution(case, "f32")


@settings(max_examples=50, deadline=None)
@given(deconvolutions.deconvolutions("bf16"))
def test_any_bf16_deconvolution(case) -> None:
    check_deconvolution(case, "bf16")


@pytest.mark.any_avx512
@pytest.mark.parametrize("order", deconvolutions.ORDERS[2])
def test_windows_that_do_not_overlap(order) -> None:
    """Weights of a product of several dimensions, in the layout that its blocks have."""
    generator = np.random.default_rng(6)
    for sizes, kernel, channels in (((3, 5), (4, 4), (40, 3)), ((1, 2), (2, 3), (17, 16))):
        case = (*deconvolutions.disjoint(generator, sizes, kernel, channels, order), False)
        check_deconvolution(case, "f32")


def check_product(case, dtype: str) -> None:
    call, source, weights, bias = case
    left, right = source.values.astype(np.float64), weights.values.astype(np.float64)
    expected, magnitude = left @ right, np.abs(left) @ np.abs(right)
    if bias is not None:
        expected, magnitude = expected + bias.astype(np.float64), magnitude + np.abs(bias)
    check(call, expected, magnitude, dtype)


@pytest.mark.any_avx512
@settings(max_examples=100, deadline=None)
@given(products.products("f32"))
def test_any_f32_product(case) -> None:
    check_product(case, "f32")


@settings(max_examples=60, deadline=None)
@given(products.products("bf16"))
def test_any_bf16_product(case) -> None:
    check_product(case, "bf16")


def dense(dtype: str = "f32", rows: int = 24) -> Call:
    """A product whose weights are packed wherever there is a brgemm for them."""
    generator = np.random.default_rng(7)
    source, weights = random_values(generator, [rows, 300], dtype), random_values(generator, [300, 70], dtype)
    return matmul_call(tensor(source), tensor(weights))


def image(dtype: str = "f32", groups: int = 1) -> Call:
    """A convolution as Keras writes it, with a residual and an activation behind it."""
    generator = np.random.default_rng(8)
    shape = [48, 48, 3, 3] if groups == 1 else [groups, 48 // groups, 48 // groups, 3, 3]
    weights = tensor(random_values(generator, shape, dtype), [2, 3, 1, 0] if groups == 1 else [3, 4, 2, 0, 1])
    source, residual = (tensor(random_values(generator, [2, 48, 9, 9], dtype), [0, 2, 3, 1]) for _ in range(2))
    window = Window((1, 1), (0, 0), (1, 1), (1, 1))
    call = convolution_call(source, weights, window, random_values(generator, [48]), [0, 2, 3, 1])
    return call.binary("add", residual.values, [0, 2, 3, 1]).eltwise("relu")


def prepacked_or_skipped(call: Call):
    form = prepacked_call_of(call)
    if form is None:
        planned = kernels.plan(call.name, call.spec)
        assert not isinstance(planned, Refusal), planned
        skip_emulated(call.spec["src_type"], planned.implementation)
        pytest.skip(f"{planned.implementation} reads these weights as they are")
    return form


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 4, 48])
def test_an_epilogue_behind_packed_weights(dtype: str, groups: int) -> None:
    call = image(dtype, groups)
    form = prepacked_or_skipped(call)
    found = run_prepacked(call, form)
    call.spec["weights_format"] = "any"
    np.testing.assert_array_equal(found, call.run())


def test_half_precision_of_five_bits() -> None:
    """Where the processor has no arithmetic in f16 the packed weights are f32."""
    spec = {name: "f16" if name.endswith("_type") else value for name, value in dense().spec.items()}
    question = {"library": "", "scratch": 0} | spec
    form = prepacked_call("onednn.matmul", question)
    planned = kernels.plan("onednn.matmul", question)
    assert not isinstance(planned, Refusal)
    if form is not None:
        assert form.call["packed_layout"].startswith("f32 " if "widened" in planned.implementation else "f16 ")


@pytest.mark.parametrize(("depth", "columns", "is_shared"), [(256, 320, True), (128, 64, True), (300, 301, False)])
def test_a_row_of_halves_reads_the_blocks_of_several_rows(depth: int, columns: int, is_shared: bool) -> None:
    """Unless they are padded to be larger than the weights."""
    skip_without("bf16")
    generator = np.random.default_rng(depth)
    weights = random_values(generator, [depth, columns], "bf16")
    layouts = []
    for rows in (1, 2, 200):
        source = random_values(generator, [rows, depth], "bf16")
        call = matmul_call(tensor(source), tensor(weights))
        form = prepacked_or_skipped(call)
        layouts.append(form.call["packed_layout"])
        exact = [of(source).astype(np.float64) @ of(weights).astype(np.float64) for of in (np.asarray, np.abs)]
        assert_close(run_prepacked(call, form), *exact, "bf16")
    assert layouts[1] == layouts[2]
    assert (layouts[0] == layouts[1]) is is_shared


def test_nothing_is_copied_in_the_calls() -> None:
    call = dense()
    form = prepacked_or_skipped(call)
    planned = kernels.plan(call.name, dict(form.call))
    assert not isinstance(planned, Refusal)
    assert not planned.reorders_weights
    assert (planned.packed_bytes, planned.scratch_bytes) == (form.bytes, form.call["scratch"])


def test_weights_in_the_preferred_layout() -> None:
    """One column of results: it is read where it is, and the plan says so."""
    generator = np.random.default_rng(9)
    call = matmul_call(tensor(random_values(generator, [9, 300])), tensor(random_values(generator, [300, 1])))
    assert prepacked_call_of(call) is None
    planned = kernels.plan(call.name, written(call) | {"weights_format": "packed"})
    assert not isinstance(planned, Refusal)
    assert (planned.packed_bytes, planned.packed_layout) == (0, "")


def test_weights_that_are_only_turned() -> None:
    """The layout may be the operand's own: packing turns them all the same, and once."""
    call = image(groups=48)
    call.spec["weights_reversed"] = 1
    form = prepacked_or_skipped(call)
    assert "back to front" in form.call["packed_layout"]
    found = run_prepacked(call, form)
    call.spec["weights_format"] = "any"
    np.testing.assert_array_equal(found, call.run())


def test_weights_that_are_a_part_of_their_buffer() -> None:
    generator = np.random.default_rng(5)
    source, weights = random_values(generator, [17, 90]), random_values(generator, [90, 133])
    call = matmul_call(tensor(source), tensor(weights[:, 6:77]))
    call.operands[1] = weights
    call.spec |= {"weights_strides": [133, 1], "weights_offset": 6, "weights_elements": weights.size}
    form = prepacked_or_skipped(call)
    expected = source.astype(np.float64) @ weights[:, 6:77].astype(np.float64)
    np.testing.assert_allclose(run_prepacked(call, form), expected, rtol=0, atol=1e-4)


def test_the_kernels_that_have_no_such_weights() -> None:
    for name in ("onednn.weights_gradient", "onednn.pooling", "onednn.softmax", "onednn.pack", "scipy.lu", "a.user's"):
        assert prepacked_call(name, written(dense())) is None


def test_a_call_that_its_kernel_refuses() -> None:
    assert prepacked_call("onednn.matmul", written(dense()) | {"src_dims": [24, 7], "src_strides": [7, 1]}) is None


def test_prepacking_again_is_the_same() -> None:
    """What the pass has of a call may be packed already."""
    call = image()
    form = prepacked_or_skipped(call)
    assert prepacked_call(call.name, form.call) == form


@pytest.fixture
def packed() -> tuple[Call, np.ndarray]:
    call = dense()
    return call, np.asarray(packing(prepacked_or_skipped(call))(call.operands[1]))


def test_packed_weights_are_not_written_to(packed: tuple[Call, np.ndarray]) -> None:
    """Not even where they are filled up: another call may be reading them."""
    call, weights = packed
    before = weights.copy()
    reading(call, prepacked_or_skipped(call))(*with_prepacked(call, weights)).block_until_ready()
    np.testing.assert_array_equal(weights, before)


def test_threads_that_read_the_same_weights(packed: tuple[Call, np.ndarray]) -> None:
    call, weights = packed
    form = prepacked_or_skipped(call)
    function = reading(call, form)
    generator = np.random.default_rng(11)
    sources = [generator.integers(-2, 3, (24, 300)).astype(call.result_dtype) for _ in range(8)]
    expected = [np.asarray(function(source, weights)) for source in sources]

    def often(index: int) -> None:
        for _ in range(50):
            np.testing.assert_array_equal(np.asarray(function(sources[index], weights)), expected[index])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(often, range(8)))


def test_threads_that_pack_at_once() -> None:
    calls = [dense(), image(), image(groups=48)]
    calls[1].spec["weights_reversed"] = 1
    forms = [prepacked_or_skipped(call) for call in calls]
    functions = [packing(form) for form in forms]
    expected = [np.asarray(function(call.operands[1])) for function, call in zip(functions, calls, strict=True)]

    def often(index: int) -> None:
        for _ in range(30):
            weights = functions[index % 3](calls[index % 3].operands[1])
            np.testing.assert_array_equal(np.asarray(weights), expected[index % 3])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(often, range(6)))
