"""Kernel call: a custom-call to a kernel as a typed value, read from its instruction and written to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.schema import CUSTOM_CALL_API_TYPED_FFI, ELEMENT_TYPE_NUMBERS, InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major, shape_of, tuple_shape

_PREFIX = "hlo_dispatch."
"""What the targets of this package's kernels begin with."""
_SCRATCH = re.compile(r"[{ ]scratch = ")
_TUPLE = ELEMENT_TYPE_NUMBERS["tuple"]


@dataclass(frozen=True)
class KernelCall:
    """A kernel call: what its custom-call says besides its name and its place."""

    target: str
    operands: tuple[int, ...]
    """Ids of the operands."""
    attributes: Attributes
    results: tuple[Shape, ...]
    """Shapes of the results, without the scratch memory."""
    scratch: int | None = None
    """Bytes of the scratch memory, the last result; None: no scratch memory."""

    @classmethod
    def read(cls, instruction: InstructionProto) -> KernelCall:
        """The call of an instruction; its attributes are parsed when they are first read."""
        shape = instruction.shape
        results = [shape_of(part) for part in (shape.tuple_shapes[:] if shape.element_type == _TUPLE else [shape])]
        text = instruction.backend_config.decode()
        scratch = results.pop().bytes if _SCRATCH.search(text) and len(results) > 1 else None
        target, operands = instruction.custom_call_target, tuple(instruction.operand_ids[:])
        return cls(target, operands, Attributes(text=text), tuple(results), scratch)

    def write(self, instruction: InstructionProto) -> None:
        """Make the instruction this call; several results form a tuple."""
        instruction.custom_call_target = self.target
        instruction.custom_call_api_version = CUSTOM_CALL_API_TYPED_FFI
        instruction.operand_ids[:] = self.operands
        instruction.backend_config = self.attributes.text.encode()
        shapes = self.shapes
        if len(shapes) == 1:
            instruction.shape.CopyFrom(shapes[0].to_proto())
        else:
            instruction.shape.CopyFrom(tuple_shape([shape.to_proto() for shape in shapes]))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the results, the scratch memory included."""
        return self.results if self.scratch is None else (*self.results, row_major("u8", (self.scratch,)))

    def with_attributes(self, attributes: Mapping[str, Any]) -> KernelCall:
        """The call with other attributes, and the scratch memory that these ask for."""
        return replace(self, attributes=Attributes(attributes), scratch=attributes.get("scratch", self.scratch))


_ROLES = {"src": "src_dims", "weights": "weights_dims", "bias": "bias_type"}
"""Role of an operand → an attribute that a call has if it has the operand."""


def operand_roles(attributes: Mapping[str, Any]) -> list[str]:
    """The roles of a call's operands by its attributes: src, weights, bias, then the post-ops that read an operand."""
    post_ops = [n for n, value in attributes.items() if n.startswith("post_op_") and value["kind"] == "binary"]
    return [role for role, name in _ROLES.items() if name in attributes] + post_ops


def is_kernel_call(instruction: InstructionProto) -> bool:
    """Whether the instruction calls a kernel of this package; a user's kernel has a target of the user's."""
    return instruction.custom_call_target.startswith(_PREFIX)
