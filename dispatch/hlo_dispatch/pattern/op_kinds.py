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
    """Whose operands and attributes the reading gives."""
    sentence: str
    """Which instructions are read so."""
    is_default: bool = False
    """Whether an entry means it that names none of its opcode's readings."""


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
            "every other product; it is what an entry means that says nothing",
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
            "a sum over all of space, between calls that can be a sequence",
        ),
        OpKind(
            "scaling",
            "multiply",
            ("own.channel_scaling", "onednn.binary"),
            "a product element by element, between calls that can be a sequence; an argument times a number ahead of"
            " them",
        ),
        OpKind(
            "rectifying",
            "maximum",
            ("onednn.binary",),
            "the larger of a value and a number, between calls that can be a sequence",
        ),
        OpKind(
            "concatenation",
            "concatenate",
            ("onednn.concat",),
            "arrays one behind the other, between calls that can be a sequence",
        ),
    )
}
"""By name. An instruction has one reading at most."""

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
"""What an integer convolution's image is; an entry's `dtypes` are those of everything else it reads."""

INTEGER_WEIGHTS = "s8"
"""What its weights are."""

NARROW_TYPES = frozenset(("s4", "s8"))
"""What the weights of a narrow product are, likewise."""

ATTENTION_KERNELS = ("own.attention",)
"""Kernels that take what an attention is read as."""
