"""Cutting a module in two: what depends on nothing but frozen parameters, and the rest."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hlo_dispatch.freezing.split import Split
from hlo_dispatch.hlo.module import Module


def build(serialized: bytes, frozen: AbstractSet[int]) -> Split:
    """Cut a serialized optimized HloModuleProto in two.

    Args:
        frozen: numbers of the entry's parameters that stay the same from call to call.

    Raises:
        ModuleError: the bytes are no module.
    """
    module = Module.from_bytes(serialized)
    count = len(module.entry.program_shape.parameters)
    kept = sorted(frozen)
    free = [number for number in range(count) if number not in frozen]
    order = kept + free
    places = {number: place for place, number in enumerate(order)}
    for instruction in module.entry.instructions[:]:
        if instruction.opcode == "parameter":
            instruction.parameter_number = places[instruction.parameter_number]
    for shape in (module.entry.program_shape, module.proto.host_program_shape):
        parameters = [type(one).FromString(one.SerializeToString()) for one in shape.parameters[:]]
        names = list(shape.parameter_names)
        del shape.parameters[:]
        shape.parameters.extend(parameters[number] for number in order)
        if names:
            del shape.parameter_names[:]
            shape.parameter_names.extend(names[number] for number in order)
    return Split(None, (), (), module.to_bytes(), kept, free)
