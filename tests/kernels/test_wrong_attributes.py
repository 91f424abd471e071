"""Wrong attributes that once ended the process, or were unchecked, and the error of each.

In a child process, because a call that is not refused may write over anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from family_sequence import added, coalesced, gated
from wire_calls import Array, WireCall, strides, valid_calls
from worker_pool import Worker

from hlo_dispatch.vendor import registry
from processor import HAS_AVX512, needs_avx512

pytestmark = pytest.mark.any_processor


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as running:
        yield running


def first(name: str, **having: object) -> WireCall:
    """The first valid call of the kernel whose attributes have these values."""
    return next(
        call
        for call in valid_calls()
        if call.name == name and all(call.attributes[key][1] == value for key, value in having.items())
    )


def with_buffers(call: WireCall, operands: list[Array], results: list[Array]) -> WireCall:
    return dataclasses.replace(call, operands=operands, results=results)


def refused(worker: Worker, call: WireCall, *fragments: str) -> None:
    outcome = worker.run(call)
    assert list(outcome) == ["error"], (outcome, worker.line(call))
    for fragment in (f"hlo_dispatch.{call.name}: ", *fragments):
        assert fragment in outcome["error"], outcome["error"]


ONEMKLS_OWN = ("onemkl.fft", "onemkl.gemm", "onemkl.pack")
LAPACK = sorted(
    name for name in registry.kernels() if not name.startswith(("onednn.", "own.", "svml.")) and name not in ONEMKLS_OWN
)
PRODUCTS = ["onednn.matmul", "onemkl.gemm"]
RESULTS = {"cholesky": "factor", "triangular_solve": "x", "lu": "lu", "qr": "qr", "householder_product": "q", 
           "eigh": "v", "svd": "u", "product": "product", "triangular_product": "product"}  # fmt: skip


@pytest.mark.parametrize("name", LAPACK)
@pytest.mark.parametrize("side", ["operand", "result"])
def test_columns_that_lie_over_one_another(worker: Worker, name: str, side: str) -> None:
    """LAPACK writes whole columns, whatever distance the attribute gives: here beyond the end of a small buffer."""
    role = "a" if side == "operand" else RESULTS[name.split(".")[1]]
    call = first(name)
    dims = call.attributes[f"{role}_dims"][1]
    lying = call.but(**{f"{role}_strides": [*strides(dims)[:-2], 1, 1]})
    if name.startswith("blocked.") and not HAS_AVX512:
        refused(worker, lying, "this processor has no AVX-512")  # which is said first
        return
    refused(worker, lying, f"attributes '{role}_dims' and '{role}_strides'", "expected a place for each element")


@pytest.mark.parametrize("folder", ["onemkl", "scipy"])
def test_all_vectors_into_a_small_matrix(worker: Worker, folder: str) -> None:
    call = first(f"{folder}.svd", mode=ord("S"))
    refused(worker, call.but(mode=ord("A")), "expected u of", " x ", "got u of")


@pytest.mark.parametrize(("name", "role"), [("onemkl.lu", "a"), ("scipy.cholesky", "factor"), ("onemkl.fft", "src")])
def test_sizes_whose_product_overflows(worker: Worker, name: str, role: str) -> None:
    call = first(name)
    dims = call.attributes[f"{role}_dims"][1]
    lying = {f"{role}_dims": [2**32, 2**32, *dims], f"{role}_strides": [1, 1, *strides(dims)]}
    refused(worker, call.but(**lying), f"attributes '{role}_dims' and '{role}_strides'")


@pytest.mark.onemkl
def test_strides_whose_sum_overflows(worker: Worker) -> None:
    call = first("onemkl.cholesky")
    lying = {"factor_dims": [3, 5, 5], "factor_strides": [2**62, 1, 5], "a_dims": [3, 5, 5], "a_strides": [25, 1, 5]}
    refused(worker, call.but(**lying), "expected sizes of a buffer in memory")


@pytest.mark.onemkl
@pytest.mark.parametrize("name", ["cholesky", "eigh"])
def test_a_complex_matrix_symmetrised(worker: Worker, name: str) -> None:
    """Half the sum with its transpose is no Hermitian matrix, and one triangle of it would be read as one."""
    call = first(f"onemkl.{name}", type="c128").but(symmetrised=1)
    refused(worker, call, "attribute 'symmetrised'", "expected real matrices")


@pytest.mark.parametrize("name", [*PRODUCTS, "onednn.convolution"])
def test_elements_times_bytes_overflow(worker: Worker, name: str) -> None:
    """2^62 elements of four bytes are no bytes at all to 64 bits."""
    call = first(name).but(src_offset=0, src_elements=2**62)
    refused(worker, call, "attribute 'src_elements'", "expected sizes of a buffer in memory")


@pytest.mark.parametrize("name", PRODUCTS)
def test_offset_times_bytes_overflows(worker: Worker, name: str) -> None:
    refused(worker, first(name).but(src_offset=2**62, src_elements=2**62 + 80), "src")


@pytest.mark.parametrize("name", PRODUCTS)
def test_an_offset_alone(worker: Worker, name: str) -> None:
    refused(worker, first(name).but(src_offset=8), "attribute 'src_elements' is missing")


@pytest.mark.parametrize("zero", [float("inf"), float("-inf"), float("nan")])
def test_a_zero_point_that_is_not_finite(worker: Worker, zero: float) -> None:
    """Subtracted from a sum of integers it is another infinity, or NaN, than subtracted from each."""
    call = next(call for call in valid_calls() if "weights_zero" in call.attributes)
    refused(worker, call.but(weights_zero=zero), "attribute 'weights_zero': expected a finite number", f"got {zero}")


@pytest.mark.parametrize("name", ["onednn.pooling", *PRODUCTS])
def test_reversed_weights_of_what_has_none(worker: Worker, name: str) -> None:
    refused(worker, first(name).but(weights_reversed=1), "attribute 'weights_reversed'")


@needs_avx512
def test_empty_matrices_in_lanes(worker: Worker) -> None:
    """As many matrices to a thread as there are elements: that was a division by zero."""
    a, info = Array("f32", [2, 3, 0, 0]), Array("s32", [2, 3])
    empty = first("blocked.cholesky").but(a_dims=a.dims, factor_dims=a.dims)
    empty = empty.but(a_strides=strides(a.dims), factor_strides=strides(a.dims))
    assert worker.run(with_buffers(empty, [a], [a, info])) == {"right": True}


@needs_avx512
def test_more_empty_matrices_than_anyone_can_count_to(worker: Worker) -> None:
    dims = [2**40, 0, 0]
    call = first("blocked.cholesky").but(a_dims=dims, factor_dims=dims, a_strides=[1, 1, 1], factor_strides=[1, 1, 1])
    empty = Array("f32", [0, 0])
    refused(worker, with_buffers(call, [empty], [empty, Array("s32", [1])]), "info: expected", "got 4 bytes")


@pytest.mark.parametrize("name", [pytest.param("blocked.triangular_product", marks=needs_avx512), "onemkl.product"])
def test_a_product_over_nothing_is_zero(worker: Worker, name: str) -> None:
    dims = {"a": [4, 0], "b": [0, 3], "product": [4, 3]}
    described = {f"{role}_dims": sizes for role, sizes in dims.items()}
    described |= {f"{role}_strides": strides(sizes) for role, sizes in dims.items()}
    call = first(name).but(**described, type="f32")
    arrays = [Array("f32", sizes) for sizes in dims.values()]
    assert worker.run(with_buffers(call, arrays[:2], arrays[2:])) == {"right": True}


@pytest.mark.parametrize("name", ["onemkl.householder_product", "scipy.householder_product"])
def test_a_negative_number_of_reflectors(worker: Worker, name: str) -> None:
    refused(worker, first(name).but(tau_dims=[-1]), "attribute 'tau_dims'")


def test_a_window_that_32_bits_take_for_a_small_one(worker: Worker) -> None:
    """oneDNN takes a dilation of 2^32 for none when it compares sizes, and steps by it when it computes."""
    for name in ("onednn.convolution", "onednn.deconvolution", "onednn.weights_gradient", "onednn.pooling"):
        call = first(name)
        count = len(call.attributes["dilations"][1])
        refused(worker, call.but(dilations=[2**32] * count), "attribute 'dilations'", "got 4294967296")


@pytest.mark.parametrize("name", PRODUCTS)
def test_an_operand_of_a_post_op_that_is_too_small(worker: Worker, name: str) -> None:
    call = first(name, bias_type="f32")
    lying = {"kind": "binary", "algorithm": "add", "type": "f32", "dims": [2, 8], "strides": [8, 1]}
    operands = [*call.operands[:-1], Array("f32", [2, 8])]
    refused(worker, with_buffers(call.but(post_op_1=lying), operands, call.results),
            "post_op_1.dims: expected the result's 5 elements or 1 in dimension 0, got 2")  # fmt: skip


@pytest.mark.onemkl
@pytest.mark.parametrize("length", [2**25, 2**30, 2**40])
def test_a_transform_of_a_length_that_nobody_has(worker: Worker, length: int) -> None:
    """oneMKL would prepare for it first: half a minute, or for ever."""
    dims = {"src_dims": [4, length], "dst_dims": [4, length]}
    lying = first("onemkl.fft").but(**dims, src_strides=[length, 1], dst_strides=[length, 1])
    refused(worker, lying, "expected lengths of at most", f"got {length}")


def test_a_convolution_over_more_than_anyone_has(worker: Worker) -> None:
    """oneDNN would choose how to compute it for longer than a minute, before there is a buffer."""
    size = 2**31 - 1
    call = next(call for call in valid_calls() if call.name == "onednn.deconvolution")
    dims = [2, 16, size]
    lying = call.but(src_dims=dims, dst_dims=dims, src_strides=strides(dims), dst_strides=strides(dims))
    lying = lying.but(weights_dims=[16, 16, 3], weights_strides=[48, 3, 1], strides=[1], dilations=[0])
    refused(worker, lying.but(padding_low=[1], padding_high=[1]), "_dims'", f"got {size}")


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_chain_with_a_gap(worker: Worker, name: str) -> None:
    relu = {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    refused(worker, first(name).but(post_op_3=relu), "attribute 'post_op_2' is missing")


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_result_with_holes(worker: Worker, name: str) -> None:
    """What was in memory before would be read as the result."""
    call = first(name).but(dst_strides=[16, 1])
    results = [Array("f32", [72]), call.results[1]]
    refused(worker, with_buffers(call, call.operands, results), "dst: expected a dense array")


@pytest.mark.parametrize("name", [*LAPACK, "own.attention"])
def test_a_result_longer_than_the_matrix(worker: Worker, name: str) -> None:
    if name.startswith("blocked.") and not HAS_AVX512:
        pytest.skip("this processor has no AVX-512, which is said before buffers are looked at")
    call = first(name)
    longer = [Array(call.results[0].type, [*call.results[0].dims, 2]), *call.results[1:]]
    refused(worker, with_buffers(call, call.operands, longer), "expected", "bytes of")


@pytest.mark.parametrize(
    ("lying", "fragment"),
    [
        ({"query_offset": 8}, "attribute 'query_elements' is missing"),
        (
            {"query_offset": 2**62, "query_elements": 2**62 + 200},
            "attribute 'query_elements': expected sizes of a buffer in memory",
        ),
        ({"query_offset": -4, "query_elements": 200}, "query: expected 120 elements behind offset -4"),
        ({"key_strides": [2**62, 36, 4, 1]}, "key: expected sizes of a buffer in memory"),
        ({"value_strides": [63, 63, 7, 1]}, "bytes of"),
        ({"dst_strides": [210, 70, 14, 1]}, "dst: expected a dense array"),
        ({"dst_strides": [105, 35, 0, 1]}, "dst: expected a place for each element"),
        ({"score_1": {"kind": "causal", "offset": 2**63 - 1, "value": 0.0}}, "attribute 'score_0' is missing"),
        ({"score_0": {"kind": "add", "type": "f32", "dims": [2, 3, 5, 8], "strides": [120, 40, 8, 1]}},
         "score_0: expected dimensions [2, 3, 5, 9]"),
        ({"score_0": {"kind": "select", "type": "f32", "dims": [2, 3, 5, 9], "strides": [0, 0, 0, 1], "value": 0.0}},
         "attribute 'score_0.type': expected an element type of pred"),
    ],
)  # fmt: skip
def test_an_attention_of_other_buffers(worker: Worker, lying: dict, fragment: str) -> None:
    refused(worker, first("own.attention").but(**lying), fragment)


def test_a_normalization_into_another_order(worker: Worker) -> None:
    """oneDNN 3.13 takes it, and writes elements to other places than it is told."""
    call = first("onednn.layer_norm", src_dims=[5, 17])
    refused(worker, call.but(dst_strides=[1, 5]), "dst: expected its dimensions in memory in the order of src's")


def test_planes_that_pooling_would_read_beyond_their_end(worker: Worker) -> None:
    """A valid call: with an operand of the result's size over planes oneDNN 3.13 answers with other memory."""
    call = first("onednn.pooling", algorithm="average")
    dims = {role: call.attributes[f"{role}_dims"][1] for role in ("src", "dst")}
    plain = call.but(src_strides=strides(dims["src"]), dst_strides=strides(dims["dst"]))
    add = {"kind": "binary", "algorithm": "add", "type": "f32", "dims": dims["dst"], "strides": strides(dims["dst"])}
    refused(worker, plain.but(post_op_1=add), "post_op_1", "only where channels are innermost")


@pytest.mark.parametrize(
    "offsets",
    [[0, 128, 64], [0, 0, 0], [0, 0, 128], [64, 128, 0]],
    ids=["half", "all", "source and gate", "other half"],
)
def test_only_what_can_be_written_over_shares_memory(worker: Worker, offsets: list[int]) -> None:
    """Members of a call group: a product, its gate, and their result, which may overwrite the product."""
    refused(worker, gated(offsets), "two values lie at")


@pytest.mark.parametrize(
    ("offsets", "accumulated", "fragment"),
    [
        ([0, 128, 256], 4, "attribute 'accumulated': expected the number of a value that lies where the result will"),
        ([0, 128, 128], 4, "attribute 'accumulated': expected the number of a value that lies where the result will"),
        ([0, 0, 0], 4, "two values lie at"),
        ([0, 128, 128], 5, "and is not read by its member, got 5"),
        ([0, 128, 0], 6, "got 6"),
        ([0, 128, 0], 3, "got 3"),
        ([0, 128, 0], 0, "got 0"),
        ([0, 128, 0], 7, "expected the number of one of 7 values, got 7"),
        ([0, 128, 0], -1, "expected the number of one of 7 values, got -1"),
    ],
)
def test_the_target_of_an_in_place_sum_is_at_the_result(
    worker: Worker, offsets: list[int], accumulated: int, fragment: str
) -> None:
    refused(worker, added(offsets, accumulated), fragment)


def test_only_members_add_to_what_is_there(worker: Worker) -> None:
    alone = first("onednn.matmul")
    summed = {"post_op_0": {"kind": "sum"}, "scratch": 4096}
    refused(worker, alone.but(**summed), "post_op_0.kind: expected one sum at most, with attribute 'accumulated'")
    refused(
        worker, alone.but(**summed, accumulated=1), "attribute 'accumulated': expected in a sequence's member alone"
    )
    refused(worker, alone.but(accumulated=1), "attribute 'accumulated': expected a post-op of the kind sum")


def test_a_product_does_not_overwrite_its_source(worker: Worker) -> None:
    branch = first("onednn.sequence", members=4, results=2)
    refused(worker, branch.but(offsets=[0, 0]), "two values lie at")


@pytest.mark.parametrize(
    ("places", "size", "fragment"),
    [
        (
            [0, 448],
            576,
            "attribute 'held': expected multiples of 64 below 576 with place for 192 bytes of f32, got 448",
        ),
        ([0, 640], 640, "got 640"),
        ([-64, 448], 640, "got -64"),
        ([0, 2**62], 640, f"got {2**62}"),
        ([4, 448], 640, "got 4"),
        ([], 640, "attribute 'held': expected 1 to 3 places, got 0"),
        ([0, 448, 0, 0], 640, "attribute 'held': expected 1 to 3 places, got 4"),
        ([0, 448, 0], 640, "expected 1 operands and 2 results, got 2 and 2"),
        ([0], 640, "expected 3 operands and 2 results, got 2 and 2"),
    ],
)
def test_coalesced_operands_are_within_their_buffer(
    worker: Worker, places: list[int], size: int, fragment: str
) -> None:
    refused(worker, coalesced(places, size), fragment)


def test_the_buffer_of_coalesced_operands_has_the_declared_size(worker: Worker) -> None:
    refused(worker, coalesced([0, 448], 640).but(held_bytes=704), "held operands: expected 704 bytes of u8")
    refused(worker, coalesced([0, 448], 640).but(held_bytes=None), "attribute 'held_bytes' is missing")
