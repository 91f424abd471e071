"""Op kinds: the canonical forms that an anchor's entry may name (YAML key `reading`), each declared here in full.

What is code is found by name: normalizers in `match/anchors/normalizers.py`, cost models in `selection/cost_model.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class OpKind(NamedTuple):
    """One canonical form of an instruction, which a normalizer produces for kernels."""

    name: str
    opcode: str
    kernels: tuple[str, ...]
    """Kernels that take the operands and attributes of this form."""
    sentence: str
    """The instructions of this op kind."""
    cost_model: str
    """The cost model of its matches; GLUE_OP: a kernel computes it only between two other calls."""
    is_default: bool = False
    """Whether it is the op kind of an entry that names none."""
    integer_results: tuple[str, ...] = ()
    """Element types of results that its kernels give of integers of eight bits, besides those of other sources."""
    is_exact: bool = False
    """Whether they compute integers of eight bits as they do everything else, so that an entry need not name them."""
    may_give_slice: bool = False
    """Whether its kernels may compute just the slice of the result that is used."""


GLUE_OP = "glue_op"

INTEGER_TYPES = frozenset(("s8", "u8"))
"""Element types of integers that are multiplied with s8, summed in s32, and numbers behind that."""

INTEGER_WEIGHTS = "s8"
"""Element type of the weights of such a product or convolution."""

SUM_TYPE = "s32"
"""Element type of sums of integers."""

_ROUNDED = ("s8", "u8")

OP_KINDS: dict[str, OpKind] = {
    op_kind.name: op_kind
    for op_kind in (
        OpKind(
            "forward",
            "convolution",
            ("onednn.convolution", "own.convolution"),
            "an image under moving weights; batch groups and exchanged operands as XLA writes them, too",
            "convolution",
            integer_results=(*_ROUNDED, SUM_TYPE),
            may_give_slice=True,
        ),
        OpKind("transposed", "convolution", ("onednn.deconvolution",), "the image is dilated", "convolution"),
        OpKind(
            "weights_gradient",
            "convolution",
            ("onednn.weights_gradient",),
            "the window is as large as the result or larger, and what is called features lies in memory as a batch",
            "convolution",
        ),
        OpKind(
            "product",
            "dot",
            ("onednn.matmul", "onemkl.gemm", "own.narrow_product"),
            "every other product; the default of an entry that names none",
            "product",
            is_default=True,
            integer_results=_ROUNDED,
            may_give_slice=True,
        ),
        OpKind(
            "narrow_product",
            "dot",
            ("own.narrow_product",),
            "a product whose weights were widened from four or eight bits, with a scale for each column"
            " (and group of what is summed up) or none",
            "weight_only_quantized_matmul",
        ),
        OpKind(
            "wrapping_product",
            "dot",
            ("own.integer_product",),
            "a product of integers whose result stays integer; sums wrap around",
            "wrapping_product",
        ),
        OpKind(
            "pooling",
            "reduce-window",
            ("onednn.pooling",),
            "a window over space, maximum or sum",
            "pooling",
            integer_results=_ROUNDED,
            is_exact=True,
        ),
        OpKind(
            "whole_window",
            "reduce",
            ("own.channel_sums", "onednn.pooling"),
            "a sum over all of space, as a glue op between the calls of a call group",
            GLUE_OP,
        ),
        OpKind(
            "scaling",
            "multiply",
            ("own.channel_scaling", "onednn.binary"),
            "an elementwise product, as a glue op between the calls of a call group; an argument times a number ahead"
            " of them",
            GLUE_OP,
        ),
        OpKind(
            "rectifying",
            "maximum",
            ("onednn.binary",),
            "the maximum of a value and a number, as a glue op between the calls of a call group",
            GLUE_OP,
        ),
        OpKind(
            "concatenation",
            "concatenate",
            ("onednn.concat",),
            "a concatenation, as a glue op between the calls of a call group",
            GLUE_OP,
        ),
    )
}
"""By name. An instruction has at most one op kind."""

ANCHOR_OPCODES: dict[str, tuple[str, ...]] = {
    opcode: tuple(op_kind.name for op_kind in OP_KINDS.values() if op_kind.opcode == opcode)
    for opcode in dict.fromkeys(op_kind.opcode for op_kind in OP_KINDS.values())
}
"""Opcode → its op kinds."""

MAY_BE_GLUE_OPS = frozenset(op_kind.opcode for op_kind in OP_KINDS.values() if op_kind.cost_model == GLUE_OP)
"""Opcodes that a kernel computes only between two other calls."""

MAY_BE_ANCHORS = frozenset(ANCHOR_OPCODES) - MAY_BE_GLUE_OPS
"""A reduce-window may be a pooling; the match package decides."""


def default_op_kind(opcode: str) -> str | None:
    """The op kind of an entry that names none; None: it must name one."""
    known = ANCHOR_OPCODES[opcode]
    return known[0] if len(known) == 1 else next((name for name in known if OP_KINDS[name].is_default), None)


FORMER_OP_KINDS = {"integer": "forward", "integer_product": "product"}
"""Op kinds of tables that were written before integers were element types → the op kinds of these."""

WRAPPING_TYPES = frozenset(("s8", "u8", "s16", "s32"))
"""Element types of products of integers whose result stays integer."""

QUANTIZED_WEIGHT_TYPES = frozenset(("s4", "s8"))
"""Element types of the weights of a weight-only quantized matmul."""

ATTENTION_KERNELS = ("own.attention",)
"""Kernels for attention."""

ELEMENTWISE_KERNELS = ("svml.elementwise",)
"""Kernels for regions of elementwise instructions."""

RECURRENT_KERNELS = ("onednn.recurrent",)
"""Kernels for recurrent layers."""

GROUP_NORM_KERNELS = ("own.group_norm",)
"""Kernels for group norms."""
