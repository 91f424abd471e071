"""Errors of prepacked weights that a call does not expect."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from calls import Call, Window, convolution_call, matmul_call, tensor
from prepacked_calls import packing, reading, with_prepacked
from test_kernel_prepacked import prepacked_or_skipped

from hlo_dispatch.vendor import kernels, registry
from hlo_dispatch.vendor.libraries import onednn
from hlo_dispatch.vendor.prepacking import PrepackedCall


def product() -> tuple[Call, PrepackedCall]:
    call = matmul_call(tensor(np.ones((3, 40), np.float32)), tensor(np.ones((40, 50), np.float32)))
    return call, prepacked_or_skipped(call)


def says(function: Any, operands: list[Any], *fragments: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(function(*operands))
    for fragment in fragments:
        assert fragment in str(caught.value), str(caught.value)


def reader_says(*fragments: str, packed: np.ndarray | None = None, **changes: Any) -> None:
    """Fails with these words where the attributes or the packed weights are others."""
    call, form = product()
    weights = np.zeros(form.bytes, np.uint8) if packed is None else packed
    operands = with_prepacked(call, weights)
    says(reading(call, form, **changes), operands, "hlo_dispatch.onednn.matmul: ", *fragments)


def packer_says(*fragments: str, weights: np.ndarray | None = None, **changes: Any) -> None:
    call, form = product()
    operand = call.operands[1] if weights is None else weights
    says(packing(form, **changes), [operand], "hlo_dispatch.onednn.pack: ", *fragments)


def test_packed_for_another_machine() -> None:
    call, form = product()
    layout, implementation = form.call["packed_layout"], kernels.plan(call.name, form.call).implementation
    other = "f32 40x50 padded 40x52 strides 52x1 blocks 4:1"
    reader_says(
        "FAILED_PRECONDITION", f"weights: expected {form.bytes} bytes '{layout}'", f"what {implementation} reads here",
        f"got packed ones of {form.bytes} bytes '{other}'", "prepare them again on this machine", packed_layout=other,
    )  # fmt: skip


def test_packed_for_another_number_of_bytes() -> None:
    _, form = product()
    reader_says("FAILED_PRECONDITION", f"expected {form.bytes} bytes", "got packed ones of 64 bytes", packed_bytes=64)


def test_weights_that_are_not_to_be_packed_here() -> None:
    call = matmul_call(tensor(np.ones((3, 40), np.float32)), tensor(np.ones((40, 1), np.float32)))
    _, form = product()
    changes = {name: value for name, value in call.spec.items() if name.endswith(("dims", "strides"))}
    reader_says("weights: expected ones that are not packed", f"packed ones of {form.bytes} bytes '", **changes)


@pytest.mark.parametrize("name", ["packed_bytes", "packed_layout", "weights_dims", "scratch"])
def test_missing_attribute(name: str) -> None:
    reader_says(f"attribute '{name}' is missing", **{name: None})


def test_wrong_attribute() -> None:
    reader_says("attribute 'packed_bytes' is not an i64", packed_bytes="many")
    reader_says("attribute 'packed_layout' is not a string", packed_layout=3)


def test_another_library() -> None:
    version = onednn().version
    reader_says("FAILED_PRECONDITION", f"planned for oneDNN 3.1.4, but oneDNN {version} is loaded", library="3.1.4")
    packer_says("FAILED_PRECONDITION", f"planned for oneDNN 3.1.4, but oneDNN {version} is loaded", library="3.1.4")


def test_another_abi() -> None:
    reader_says("kernel ABI 999", abi=999)
    packer_says("kernel ABI 999", abi=999)


def test_buffers_of_another_size_or_type() -> None:
    _, form = product()
    expected = f"weights: expected {form.bytes} bytes of u8, got"
    reader_says(f"{expected} {form.bytes + 1} bytes of u8", packed=np.zeros(form.bytes + 1, np.uint8))
    reader_says(f"{expected} {form.bytes} bytes of f32", packed=np.zeros(form.bytes // 4, np.float32))
    reader_says(f"{expected} 8000 bytes of f32", packed=np.ones((40, 50), np.float32))


def test_what_is_packed_has_another_size_or_type() -> None:
    packer_says("weights: expected 8000 bytes of f32, got 4000 bytes of f32", weights=np.ones((40, 25), np.float32))
    packer_says("weights: expected 8000 bytes of f32, got 8000 bytes of s32", weights=np.ones((40, 50), np.int32))


def test_the_packed_buffer_has_another_size() -> None:
    call, form = product()
    larger = PrepackedCall(
        form.bytes + 64, form.call, form.prepack_target, form.prepack_attributes, form.prepack_scratch
    )
    says(packing(larger), [call.operands[1]], f"packed: expected {form.bytes} bytes of u8")


def test_packing_for_another_machine() -> None:
    packer_says("FAILED_PRECONDITION", "got packed ones of", "'rows'", packed_layout="rows")


def test_packing_for_a_kernel_that_has_none() -> None:
    for target in ("onednn.pooling", "onednn.pack", "onednn.weights_gradient", "nothing"):
        packer_says(
            "attribute 'target': expected a kernel that takes packed weights (onednn.convolution, "
            f"onednn.deconvolution, onednn.matmul, onednn.recurrent), got '{target}'", target=target,
        )  # fmt: skip
    packer_says("attribute 'target' is missing", target=None)
    packer_says("attribute 'weights_format': expected packed, got 'any'", weights_format="any")


def test_packing_what_is_read_as_it_is() -> None:
    column = matmul_call(tensor(np.ones((3, 40), np.float32)), tensor(np.ones((40, 1), np.float32)))
    changes = {name: value for name, value in column.spec.items() if name.endswith(("dims", "strides"))}
    said = {"packed_bytes": None, "packed_layout": None}
    packer_says("UNIMPLEMENTED", "reads these weights as they are: there is nothing to pack", **changes, **said)


def test_too_little_scratch_memory() -> None:
    call = convolution_call(
        tensor(np.ones((1, 64, 14, 14), np.float32), [0, 2, 3, 1]),
        tensor(np.ones((64, 1, 1, 3, 3), np.float32), [3, 4, 2, 0, 1]),
        Window((1, 1), (0, 0), (1, 1), (1, 1)), None, [0, 2, 3, 1],
    )  # fmt: skip
    call.spec["weights_reversed"] = 1
    form = prepacked_or_skipped(call)
    assert form.prepack_scratch >= 64 * 9 * 4
    says(packing(form, scratch=0), call.operands[1:2], "attribute 'scratch': planned 0 bytes", "compile it again")


def test_kernels_without_weights_to_pack() -> None:
    dense = {"dims": [16, 16], "strides": [16, 1], "type": "f32"}
    spec = {f"{role}_{key}": value for role in ("src", "dst") for key, value in dense.items()}
    spec |= {"abi": registry.abi(), "algorithm": "softmax", "weights_format": "packed"}
    with pytest.raises(ValueError, match="'weights_format': expected plain, any or best, got 'packed'"):
        kernels.plan("onednn.softmax", spec)
