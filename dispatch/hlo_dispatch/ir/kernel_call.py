"""Kernel call: a custom-call to a kernel as a typed value, read from its instruction and written to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from hlo_dispatch.ir.attributes import Attributes, has_attribute, split_first
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import Shape, row_major, shape_of, tuple_shape

_PREFIX = "hlo_dispatch."
"""What the targets of this package's kernels begin with."""
_SLICES = "slices"
"""Name of the first attribute of a call that reads slices."""
_SLICE_ATTRIBUTES = ("operands", "indexes", "counts", "strides", "elements")
_TUPLE = ELEMENT_TYPE_NUMBERS["tuple"]
NOTHING_KNOWN: Mapping[str, Attributes] = MappingProxyType({})


@dataclass(frozen=True)
class OperandSlice:
    """A slice of an operand at an index that is known when the call runs: what a dynamic-slice of one index gives."""

    index: int
    """Id of the scalar index, which the call clamps to the first or the last slice."""
    count: int
    """How many slices there are."""
    stride: int
    """Bytes between neighbouring slices."""
    elements: int
    """Elements of a slice."""


@dataclass  # not frozen: that assigns each field by a call, and a module has many of them
class KernelCall:
    """A kernel call: what its custom-call says besides its name and its place."""

    target: str
    operands: tuple[int, ...]
    """Ids of the operands, without the indexes of slices."""
    attributes: Attributes
    results: tuple[Shape, ...]
    """Shapes of the results, without the scratch memory."""
    scratch: int | None = None
    """Bytes of the scratch memory, the last result; None: no scratch memory."""
    slices: Mapping[int, OperandSlice] = field(default_factory=dict[int, OperandSlice])
    """Number of an operand that the call reads a slice of → the slice."""

    @classmethod
    def read(cls, instruction: InstructionProto, known: Mapping[str, Attributes] = NOTHING_KNOWN) -> KernelCall:
        """The call of an instruction; its attributes are parsed when they are first read.

        Args:
            known: text → attributes that need not be parsed.
        """
        shape = instruction.shape
        results = [shape_of(part) for part in (shape.tuple_shapes[:] if shape.element_type == _TUPLE else [shape])]
        described, text = split_first(instruction.backend_config.decode(), _SLICES)
        scratch = results.pop().bytes if len(results) > 1 and has_attribute(text, "scratch") else None
        operands = arguments = tuple(instruction.operand_ids[:])
        slices = dict[int, OperandSlice]()
        if described is not None:
            lists: list[list[int]] = [described[name] for name in _SLICE_ATTRIBUTES]
            numbers, indexes, counts, strides, elements = lists
            slices = {
                number: OperandSlice(arguments[indexes[place]], counts[place], strides[place], elements[place])
                for place, number in enumerate(numbers)
            }
            operands = arguments[: min(indexes)]
        target = instruction.custom_call_target
        attributes = known[text] if text in known else Attributes(text=text)
        return cls(target, operands, attributes, tuple(results), scratch, slices)

    def write(self, instruction: InstructionProto) -> None:
        """Make the instruction this call; several results form a tuple."""
        instruction.custom_call_target = self.target
        instruction.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        arguments = self.arguments
        instruction.operand_ids[:] = arguments
        attributes = self.attributes
        if self.slices:
            rows = (
                (number, arguments.index(of.index, len(self.operands)), of.count, of.stride, of.elements)
                for number, of in self.slices.items()
            )
            described = zip(_SLICE_ATTRIBUTES, zip(*rows, strict=True), strict=True)
            attributes = attributes.after({_SLICES: dict(described)})
        instruction.backend_config = attributes.text.encode()
        instruction.shape.CopyFrom(_shape_of_results(self.shapes))

    @property
    def arguments(self) -> tuple[int, ...]:
        """Ids of the operands, then of the indexes of slices."""
        return (*self.operands, *dict.fromkeys(of.index for of in self.slices.values()))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the results, the scratch memory included."""
        return self.results if self.scratch is None else (*self.results, row_major("u8", (self.scratch,)))

    def with_attributes(self, attributes: Mapping[str, Any]) -> KernelCall:
        """The call with other attributes, and the scratch memory that these ask for."""
        return replace(self, attributes=Attributes(attributes), scratch=attributes.get("scratch", self.scratch))


@lru_cache(maxsize=1024)
def _shape_of_results(shapes: tuple[Shape, ...]) -> ShapeProto:
    """The shape of a call with these results. Shared: copy it, never change it."""
    return shapes[0].to_proto() if len(shapes) == 1 else tuple_shape([shape.to_proto() for shape in shapes])


_ROLES = ("src", "weights", "scales", "zeros", "bias")
"""Roles of operands, in their order; a call that has one has an attribute of its type."""


def operand_roles(attributes: Mapping[str, Any]) -> list[str]:
    """The roles of a call's operands by its attributes: those above, then the post-ops that read an operand."""
    post_ops = [n for n, value in attributes.items() if n.startswith("post_op_") and value["kind"] == "binary"]
    return [role for role in _ROLES if f"{role}_type" in attributes] + post_ops


def has_slices(target: str) -> bool:
    """Whether calls of this kernel can read slices of operands: all of this package can, a user's cannot."""
    return target.startswith(_PREFIX)


def is_kernel_call(instruction: InstructionProto) -> bool:
    """Whether the instruction calls a kernel of this package; a user's kernel has a target of the user's."""
    return instruction.custom_call_target.startswith(_PREFIX)
