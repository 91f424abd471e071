"""Weight prepacking of oneMKL: results equal those of plain weights, at any address, and other buffers are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import Call, assert_close, matmul_call, random_values, tensor
from prepacked_calls import packing, prepacked_call_of, reading, run_prepacked, with_prepacked

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels
from hlo_dispatch.vendor.prepacking import PrepackedCall, prepacked_call

# The ISA cap does not reach oneMKL.
pytestmark = [pytest.mark.any_python, pytest.mark.any_processor, pytest.mark.onemkl]

GEMM = "onemkl.gemm"
LARGE_PAGE = 2 << 20


def product(
    rows: int, depth: int = 2600, columns: int = 1301, *, by_column: bool = False
) -> tuple[Call, np.ndarray, np.ndarray]:
    """With weights of some megabytes, an epilogue, what it gives in float64, and the sum of absolute products."""
    generator = np.random.default_rng(rows)
    source, weights = random_values(generator, [rows, depth]), random_values(generator, [depth, columns])
    bias, residual = random_values(generator, [columns]), random_values(generator, [rows, columns])
    call = matmul_call(tensor(source), tensor(weights, [1, 0] if by_column else None), bias, name=GEMM)
    call.eltwise("relu").binary("add", residual)
    expected = np.maximum(source.astype(np.float64) @ weights.astype(np.float64) + bias, 0) + residual
    return call, expected, np.abs(source).astype(np.float64) @ np.abs(weights).astype(np.float64)


def packed(call: Call) -> PrepackedCall:
    form = prepacked_call_of(call)
    if form is None:
        pytest.skip("oneMKL wants too much memory for these weights on this processor")
    return form


# Rows that share panels, rows that each thread has some of, and more columns than panels divide evenly.
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 4099), (5, 4099), (33, 4099), (64, 1301), (70, 2048), (201, 1301)])
def test_packed_weights_give_what_plain_ones_give(rows: int, columns: int, by_column: bool) -> None:
    call, expected, magnitude = product(rows, columns=columns, by_column=by_column)
    found = run_prepacked(call, packed(call))
    assert_close(found, expected, magnitude)
    assert_close(call.run(), found, magnitude)


def test_small_weights_are_not_worth_the_memory() -> None:
    call, *_ = product(64, 5, 7)
    planned = call.planned(weights_format="packed")
    assert not isinstance(planned, Refusal)
    if not planned.packed_bytes:
        assert prepacked_call_of(call) is None
        assert (planned.implementation, planned.packed_layout) == ("sgemm", "")
    else:
        assert planned.packed_bytes <= 3 * 5 * 7 * 4 + 3


def test_results_by_column_have_plain_weights() -> None:
    call, *_ = product(70)
    call.spec |= {"dst_strides": [1, 70]}
    assert prepacked_call_of(call) is None


def test_the_plan_says_what_the_layout_depends_on() -> None:
    call, *_ = product(70)
    form = packed(call)
    layout = form.call["packed_layout"]
    for fact in ("f32 2600x1301", "for 70 rows", "branch", "columns, by sgemm_pack"):
        assert fact in layout
    assert form.prepack_target == "hlo_dispatch.onemkl.pack"
    assert prepacked_call(GEMM, form.call) == form
    other = packed(product(201)[0])
    assert other.call["packed_layout"] != layout


@pytest.mark.parametrize("distance", [0, 64, 128, 192, 2048, 4032, 4096, 40960, 1 << 20])
def test_weights_may_be_moved(distance: int) -> None:
    """oneMKL's own format is bound to the alignment of where it was written."""
    call, expected, magnitude = product(70)
    form = packed(call)
    made = np.asarray(packing(form)(call.operands[1]))
    room = np.zeros(form.bytes + 2 * LARGE_PAGE, np.uint8)
    begin = (-room.ctypes.data) % LARGE_PAGE + distance
    moved = room[begin : begin + form.bytes]
    moved[:] = made
    given = jnp.asarray(moved)  # not copied: it is aligned as JAX wants it
    found = call.logical(reading(call, form)(*with_prepacked(call, given)))
    assert_close(found, expected, magnitude)


def test_weights_that_are_a_part_of_their_buffer() -> None:
    generator = np.random.default_rng(5)
    source, weights = random_values(generator, [70, 1200]), random_values(generator, [1200, 1500])
    call = matmul_call(tensor(source), tensor(weights[:, 6:1370]), name=GEMM)
    call.operands[1] = weights
    call.spec |= {"weights_strides": [1500, 1], "weights_offset": 6, "weights_elements": weights.size}
    expected = source.astype(np.float64) @ weights[:, 6:1370].astype(np.float64)
    np.testing.assert_allclose(run_prepacked(call, packed(call)), expected, rtol=0, atol=1e-3)


def refused(function, operands, *fragments: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(function(*operands))
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_what_was_not_packed_here_is_refused() -> None:
    call, *_ = product(70)
    form = packed(call)
    nothing = with_prepacked(call, np.zeros(form.bytes, np.uint8))
    expected = "weights: expected what hlo_dispatch.onemkl.pack wrote as 'f32 2600x1301"
    refused(reading(call, form), nothing, "INVALID_ARGUMENT", expected)
    other, *_ = product(201)
    elsewhere = packing(packed(other))(other.operands[1])
    if elsewhere.size == form.bytes:
        refused(reading(call, form), with_prepacked(call, elsewhere), expected)
    broken = np.array(packing(form)(call.operands[1]))
    broken[8:16] = 255  # where it says where the panels begin
    refused(reading(call, form), with_prepacked(call, broken), expected)
    short = with_prepacked(call, np.zeros(form.bytes - 1, np.uint8))
    refused(reading(call, form), short, f"weights: expected {form.bytes} bytes of u8")


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"packed_layout": "f32 by another"}, ("FAILED_PRECONDITION", "which is what sgemm_compute reads here",
          "'f32 by another'", "prepare them again on this machine")),
        ({"packed_bytes": 64}, ("FAILED_PRECONDITION", "got packed ones of 64 bytes")),
        ({"packed_layout": None}, ("attribute 'packed_layout' is missing",)),
        ({"packed_bytes": None}, ("attribute 'packed_bytes' is missing",)),
        ({"library": "1.0"}, ("this executable was planned for oneMKL 1.0",)),
    ],
)  # fmt: skip
def test_attributes_of_another_machine(changes: dict[str, object], fragments: tuple[str, ...]) -> None:
    call, *_ = product(70)
    form = packed(call)
    blob = packing(form)(call.operands[1])
    refused(reading(call, form, **changes), with_prepacked(call, blob), "hlo_dispatch.onemkl.gemm: ", *fragments)


def test_packing_for_nobody() -> None:
    call, *_ = product(70)
    form = packed(call)
    targets = "expected a kernel that takes packed weights (onemkl.gemm), got 'onednn.matmul'"
    refused(packing(form, target="onednn.matmul"), [call.operands[1]], "hlo_dispatch.onemkl.pack: ", targets)
    refused(packing(form, weights_format="plain"), [call.operands[1]], "'weights_format': expected packed")
    small = call.asked() | {"weights_format": "packed", "target": GEMM}
    small |= {"src_dims": [70, 4], "src_strides": [4, 1], "weights_dims": [4, 1301]}
    planned = kernels.plan("onemkl.pack", small)
    assert not isinstance(planned, Refusal) or "there is nothing to pack" in planned.sentence


def test_threads_that_read_the_same_weights() -> None:
    call, expected, magnitude = product(70)
    form = packed(call)
    function = reading(call, form)
    operands = with_prepacked(call, packing(form)(call.operands[1]))
    first = np.asarray(function(*operands))
    assert_close(call.logical(first), expected, magnitude)

    def often(_: int) -> None:
        for _ in range(20):
            np.testing.assert_array_equal(np.asarray(function(*operands)), first)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(often, range(4)))
