"""Entry parameters: renumbering, together with everything in a module that refers to a parameter by its number.

Every pass that adds, drops or reorders an entry's parameters calls this module. Stale aliases and buffer donors refer
to other parameters, and XLA frees or overwrites buffers that it does not own: measured, a corrupted heap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto

_REPLICATED = b""
"""An OpSharding with nothing set."""


def renumber_parameters(module: Module, order: Sequence[int]) -> None:
    """Number the entry's parameters anew; aliases, donors, prefetches, shardings and the signature follow.

    Args:
        order: for each parameter that the entry has now, in its new order, the number that its instruction has. From
            the signature's count on, these are numbers of new parameters; parameters with missing numbers are
            removed, and all references to them.
    """
    new = {old: place for place, old in enumerate(order)}
    proto, entry = module.proto, module.entry
    count = len(entry.program_shape.parameters)
    for instruction in _parameters(module):
        instruction.parameter_number = new[instruction.parameter_number]
    for entries in (proto.input_output_alias.entries, proto.buffer_donor.entries):
        for place in reversed(range(len(entries))):
            if entries[place].parameter_number in new:
                entries[place].parameter_number = new[entries[place].parameter_number]
            else:
                del entries[place]
    _renumber_prefetches(module, new)
    shardings = proto.spmd_parameters_shardings[:]
    if len(shardings) == count:
        proto.spmd_parameters_shardings[:] = [shardings[old] if old < count else _REPLICATED for old in order]
    update_signature(module)


def update_signature(module: Module) -> None:
    """Update the signature to the entry's parameters and result, which have changed."""
    entry = module.entry
    parameters = sorted(_parameters(module), key=lambda instruction: instruction.parameter_number)
    result = next(instruction for instruction in entry.instructions[:] if instruction.id == entry.root_id)
    for shape in (entry.program_shape, module.proto.host_program_shape):
        shape.Clear()
        shape.parameters.extend(parameter.shape for parameter in parameters)
        shape.parameter_names.extend(parameter.name for parameter in parameters)
        shape.result.CopyFrom(result.shape)


def remove_donation(module: Module) -> None:
    """Remove all aliases and donors: the parameters are read again, or belong to another entry."""
    module.proto.ClearField("input_output_alias")
    module.proto.ClearField("buffer_donor")


def unread_parameters(module: Module) -> set[int]:
    """Numbers of the parameters that no instruction has as an operand."""
    entry = module.entry
    read = {operand for instruction in entry.instructions[:] for operand in instruction.operand_ids[:]}
    return {p.parameter_number for p in _parameters(module) if p.id not in read and p.id != entry.root_id}


def _renumber_prefetches(module: Module, new: Mapping[int, int]) -> None:
    prefetches = module.proto.cross_program_prefetches
    for place in reversed(range(len(prefetches))):
        if prefetches[place].parameter in new:
            prefetches[place].parameter = new[prefetches[place].parameter]
        else:
            del prefetches[place]


def _parameters(module: Module) -> list[InstructionProto]:
    return [instruction for instruction in module.entry.instructions[:] if instruction.opcode == "parameter"]
