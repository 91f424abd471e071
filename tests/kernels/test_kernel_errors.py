"""Errors of malformed calls: the operand or attribute, what was expected, what came."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from calls import Window, convolution_call, matmul_call, tensor

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels
from hlo_dispatch.vendor.libraries import onednn


def product():
    return matmul_call(tensor(np.ones((3, 4), np.float32)), tensor(np.ones((4, 5), np.float32)))


def fails(call, *fragments, operands=None, **changes):
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        call.compiled(**changes)(*(operands or call.operands)).block_until_ready()
    message = str(caught.value)
    for fragment in ("hlo_dispatch.onednn.", *fragments):
        assert fragment in message, message


def test_operand_of_another_size():
    call = product()
    fails(call, "weights: expected 80 bytes of f32, got 60 bytes of f32",
          operands=[call.operands[0], np.ones((3, 5), np.float32)])  # fmt: skip


def test_operand_of_another_type():
    call = product()
    fails(
        call,
        "src: expected 48 bytes of f32, got 48 bytes of s32",
        operands=[np.ones((3, 4), np.int32), call.operands[1]],
    )


def test_operand_missing():
    fails(product(), "expected 2 operands, got 1", operands=[np.ones((3, 4), np.float32)])


def test_too_little_scratch():
    call = convolution_call(
        tensor(np.ones((1, 64, 14, 14), np.float32), [0, 2, 3, 1]),
        tensor(np.ones((64, 1, 1, 3, 3), np.float32), [3, 4, 2, 0, 1]),
        Window((1, 1), (0, 0), (1, 1), (1, 1)), None, [0, 2, 3, 1],
    )  # fmt: skip
    call.spec |= {"weights_reversed": 1, "weights_format": "plain"}  # a copy in the scratch memory
    planned = kernels.plan(call.name, call.spec)
    assert not isinstance(planned, Refusal)
    assert planned.scratch_bytes >= 64 * 9 * 4
    fails(call, "attribute 'scratch': planned 0 bytes", f"needs {planned.scratch_bytes}", "compile it again", scratch=0)


def test_planned_for_another_library():
    fails(product(), "planned for oneDNN 3.1.4", f"oneDNN {onednn().version} is loaded", library="3.1.4")


def test_another_abi():
    fails(product(), "kernel ABI 999", "compile it again", abi=999)


@pytest.mark.parametrize("name", ["abi", "library", "scratch", "src_type", "weights_dims", "dst_strides"])
def test_missing_attribute(name):
    fails(product(), f"attribute '{name}' is missing", **{name: None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src_type": "f64"}, "attribute 'src_type': expected an element type of f32, bf16, f16, s8, u8, got 'f64'"),
        ({"src_type": 3}, "attribute 'src_type' is not a string"),
        ({"src_dims": "34"}, "attribute 'src_dims' is not"),
        ({"src_dims": [3, 0]}, "src: expected dimensions >= 1, got 0"),
        ({"src_strides": [4]}, "src: expected as many strides as dimensions (2), got 1"),
        ({"src_strides": [4, -1]}, "src: expected strides >= 1, got -1"),
        ({"src_dims": [1, 3, 4], "src_strides": [12, 4, 1]}, "src: expected as many dimensions as dst (2)"),
        (
            {"weights_format": "blocked"},
            "attribute 'weights_format': expected plain, any, best or packed, got 'blocked'",
        ),
        ({"post_op_0": {"kind": "eltwise"}}, "attribute 'algorithm' is missing"),
        (
            {"post_op_0": {"kind": "total", "algorithm": "x"}},
            "post_op_0.kind: expected eltwise, binary or sum, got 'total'",
        ),
        (
            {"post_op_0": {"kind": "eltwise", "algorithm": "selu", "alpha": 0.0, "beta": 0.0}},
            "post_op_0.algorithm: expected one of abs, clip,",
        ),
        (
            {"post_op_0": {"kind": "binary", "algorithm": "add", "type": "f32", "dims": [5], "strides": [1]}},
            "post_op_0.dims: expected the result's 2 dimensions, got 1",
        ),
    ],
)
def test_wrong_attribute_says_the_same_when_planned_and_when_run(changes, message):
    call = product()
    with pytest.raises(ValueError, match=re.escape(message)):
        kernels.plan(call.name, call.spec | changes)
    fails(call, message, **changes)


def test_convolution_ranks():
    call = convolution_call(
        tensor(np.ones((1, 16, 5, 5), np.float32), [0, 2, 3, 1]),
        tensor(np.ones((16, 16, 2, 2), np.float32), [2, 3, 1, 0]),
        Window((1, 1), (0, 0), (0, 0), (0, 0)), None, [0, 2, 3, 1],
    )  # fmt: skip
    fails(call, "attribute 'strides': expected 2 integers, got 1", strides=[1])
    fails(
        call, "weights: expected 4 dimensions, or 5 with groups, got 2", weights_dims=[16, 64], weights_strides=[64, 1]
    )
    fails(call, "src: expected 3 to 5 dimensions", src_dims=[16, 25], src_strides=[25, 1])


def test_what_onednn_cannot_do_is_a_refusal():
    call = product()
    refused = kernels.plan(call.name, call.spec | {"src_dims": [3, 7], "src_strides": [7, 1]})
    assert isinstance(refused, Refusal)
    assert refused.code == "kernel-unsupported"
    assert "onednn.matmul" in refused.sentence
    assert "oneDNN" in refused.sentence


def test_plans_are_kept_by_content():
    call = product()
    assert kernels.plan(call.name, call.spec) is kernels.plan(call.name, {**call.spec, "src_dims": (3, 4)})


def test_unknown_kernel():
    with pytest.raises(KeyError):
        kernels.plan("onednn.nothing", {})


def test_part_reaches_beyond_its_buffer():
    fails(product(), "src: expected 12 elements behind offset 2, got a buffer of 13", src_offset=2, src_elements=13)
    fails(product(), "weights: expected 20 elements behind offset -1", weights_offset=-1, weights_elements=40)
    fails(product(), "dst: expected a whole buffer, got a part of one", dst_offset=0, dst_elements=15)


def test_buffer_of_a_part_has_another_size():
    fails(product(), "src: expected 80 bytes of f32, got 48 bytes of f32", src_offset=2, src_elements=20)
