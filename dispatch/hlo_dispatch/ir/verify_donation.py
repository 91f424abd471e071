"""Verifier of buffer donation: aliases of parameters with results, and buffer donors, by XLA's own rules.

Sizes have to agree and shapes need not: XLA itself gives a donated f32[4,8] to any result of as many bytes, such as
f32[8,4] or s32[4,8].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ShapeProto
from hlo_dispatch.ir.shape import Shape, shape_of

_NO_ARRAYS = frozenset(("tuple", "opaque", "token"))


def verify_donation(module: Module) -> None:
    """Check the signature, the aliases and the donors of a module's entry parameters.

    Raises:
        ModuleError: the signature has another number of them; or an alias or a donor refers to a buffer that is not
            there, to one that another has, or to a result of another size.
    """
    proto, entry = module.proto, module.entry
    parameters = {i.parameter_number: i.shape for i in entry.instructions[:] if i.opcode == "parameter"}
    for holder, field in ((entry, "program_shape"), (proto, "host_program_shape")):
        count = len(getattr(holder, field).parameters)
        if holder.HasField(field) and count != len(parameters):
            raise ModuleError(f"{entry.name}: its signature has {count} parameters, and it has {len(parameters)}")
    aliases, donors = proto.input_output_alias.entries[:], proto.buffer_donor.entries[:]
    if not aliases and not donors:
        return
    result = next(i.shape for i in entry.instructions[:] if i.id == entry.root_id)
    donated = [
        _Buffer.of(f"parameter {one.parameter_number}", parameters.get(one.parameter_number), one.parameter_shape_index)
        for one in (*aliases, *donors)
    ]
    results = [_Buffer.of("the result", result, alias.output_shape_index) for alias in aliases]
    names = [buffer.name for buffer in (*donated, *results)]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ModuleError(f"{entry.name}: {repeated[0]} is donated twice")
    for parameter, becomes in zip(donated, results, strict=False):
        if parameter.size != becomes.size:
            raise ModuleError(
                f"{entry.name}: {parameter.name} ({parameter.shape}) cannot become {becomes.name} ({becomes.shape}), "
                "which is of another size"
            )


@dataclass(frozen=True)
class _Buffer:
    """An array that is a parameter, the result, or an element of one of these."""

    name: str
    shape: Shape

    @classmethod
    def of(cls, name: str, shape: ShapeProto | None, index: Sequence[int]) -> _Buffer:
        """Raises ModuleError: there is no such array."""
        name += "".join(f"[{place}]" for place in index)
        for place in index:
            if shape is not None:
                shape = shape.tuple_shapes[place] if 0 <= place < len(shape.tuple_shapes) else None
        if shape is None:
            raise ModuleError(f"{name} is donated, and there is none")
        found = shape_of(shape)
        if found.element_type in _NO_ARRAYS:
            raise ModuleError(f"{name} is donated, and is no array but {found.element_type}")
        return cls(name, found)

    @property
    def size(self) -> tuple[str, int]:
        """In bytes; in elements of a type whose size is not known here."""
        return ("", self.shape.bytes) if self.shape.is_array else (self.shape.element_type, self.shape.elements)
