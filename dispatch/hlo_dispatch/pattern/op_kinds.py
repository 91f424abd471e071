"""Op kinds: the canonical forms that an anchor's entry may name (YAML key `reading`), and the kernels for each.

The normalizers are in `match/anchors`, by the same names.
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
    is_default: bool = False
    """Whether it is the op kind of an entry that names none."""


OP_KINDS: dict[str, OpKind] = {
    op_kind.name: op_kind
    for op_kind in (
        OpKind(
            "forward",
            "convolution",
            ("onednn.convolution",),
            "an image under moving weights; batch groups and exchanged operands as XLA writes them, too",
        ),
        OpKind("transposed", "convolution", ("onednn.deconvolution",), "the image is dilated"),
        OpKind(
            "integer",
            "convolution",
            ("onednn.convolution",),
            "image and weights of eight bits, and numbers of f32 made of the sums",
        ),
        OpKind(
            "weights_gradient",
            "convolution",
            ("onednn.weights_gradient",),
            "the window is as large as the result or larger, and what is called features lies in memory as a batch",
        ),
        OpKind(
            "product",
            "dot",
            ("onednn.matmul", "onemkl.gemm", "own.narrow_product"),
            "every other product; the default of an entry that names none",
            is_default=True,
        ),
        OpKind(
            "narrow_product",
            "dot",
            ("own.narrow_product",),
            "a product of few rows whose weights were widened from four or eight bits, with a scale for each column"
            " (and group of what is summed up) or none",
        ),
        OpKind(
            "integer_product",
            "dot",
            ("onednn.matmul",),
            "a product of integers of eight bits, and numbers of f32 made of the sums",
        ),
        OpKind("pooling", "reduce-window", ("onednn.pooling",), "a window over space, maximum or sum"),
        OpKind(
            "whole_window",
            "reduce",
            ("own.channel_sums", "onednn.pooling"),
            "a sum over all of space, as a glue op between the calls of a call group",
        ),
        OpKind(
            "scaling",
            "multiply",
            ("own.channel_scaling", "onednn.binary"),
            "an elementwise product, as a glue op between the calls of a call group; an argument times a number ahead"
            " of them",
        ),
        OpKind(
            "rectifying",
            "maximum",
            ("onednn.binary",),
            "the maximum of a value and a number, as a glue op between the calls of a call group",
        ),
        OpKind(
            "concatenation",
            "concatenate",
            ("onednn.concat",),
            "a concatenation, as a glue op between the calls of a call group",
        ),
    )
}
"""By name. An instruction has at most one op kind."""

ANCHOR_OPCODES: tuple[str, ...] = tuple(dict.fromkeys(op_kind.opcode for op_kind in OP_KINDS.values()))


def op_kinds_of(opcode: str) -> list[str]:
    """The names of an opcode's op kinds."""
    return [op_kind.name for op_kind in OP_KINDS.values() if op_kind.opcode == opcode]


def default_op_kind(opcode: str) -> str | None:
    """The op kind of an entry that names none; None: it must name one."""
    known = op_kinds_of(opcode)
    usual = [name for name in known if OP_KINDS[name].is_default or len(known) == 1]
    return usual[0] if usual else None


INTEGER_TYPES = frozenset(("s8", "u8"))
"""Element types of an integer convolution's image; an entry's `dtypes` are those of all other operands."""

INTEGER_WEIGHTS = "s8"
"""Element type of its weights."""

QUANTIZED_WEIGHT_TYPES = frozenset(("s4", "s8"))
"""Element types of the weights of a weight-only quantized matmul."""

ATTENTION_KERNELS = ("own.attention",)
"""Kernels for attention."""
