"""Overwritten parameters: arrays of the entry's, a loop's or a branch's that an in-place update may overwrite.

Copy insertion keeps updates away from parameters; a value that became a parameter after it needs a copy of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.in_place_updates import variant_elements, writes_in_place, written_operands
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import remove_donation
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import FORWARDS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

Path = tuple[int, ...]
"""Tuple indices of an element of an instruction's result."""


def overwritten_parameters(module: Module, parameters: AbstractSet[int]) -> set[int]:
    """Numbers of those of these array parameters of the entry that an instruction, a loop or a branch may overwrite."""
    buffers = _ForwardedBuffers(module)
    return {
        instruction.parameter_number
        for instruction in module.entry.instructions[:]
        if instruction.opcode == "parameter"
        and instruction.parameter_number in parameters
        and buffers.results(module.entry, instruction.id, ()) is None
    }


def copy_overwritten(module: Module, parameters: AbstractSet[int]) -> None:
    """Copy those of these array parameters of the entry that an instruction would overwrite."""
    overwritten = overwritten_parameters(module, parameters)
    if not overwritten:
        return
    draft = Editor(module, module.entry)
    for parameter in draft.parameters():
        if parameter.parameter_number in overwritten:
            copy = draft.after(parameter.id).make("copy", parameter.shape, parameter.id, stem="own_copy")
            draft.replace_all_uses_with(parameter.id, copy.id)
    commit(module, [draft])


def keep_inputs(module: Module) -> None:
    """Donate no parameter: copy what the program would overwrite, for callers who read their arguments again."""
    donations = (*module.proto.input_output_alias.entries, *module.proto.buffer_donor.entries)
    copy_overwritten(module, {entry.parameter_number for entry in donations})
    remove_donation(module)


def overwritten_elements(
    module: Module, computation: ComputationProto, elements: Iterable[int], *, is_loop: bool
) -> set[int]:
    """Those of these elements of the tuple that a loop's body or a branch takes whose buffers it does not only read.

    It may overwrite them, or they are a part of its result. A loop's body returns invariant elements in their places.
    """
    buffers = _ForwardedBuffers(module)
    (parameter,) = _parameters(computation)
    results = {index: buffers.results(computation, parameter.id, (index,)) for index in elements}
    return {
        index for index, paths in results.items() if paths is None or paths - ({(index,)} if is_loop else set[Path]())
    }


class _ForwardedBuffers:
    """Follows one buffer through the instructions that forward it."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._users: dict[int, dict[int, list[tuple[InstructionProto, int]]]] = {}
        """Id of a computation → id of an instruction → its users, and as which operand they have it."""
        self._variant: dict[int, frozenset[int]] = {}
        """Id of a loop's body → the elements of its state that it does not return unchanged."""

    def results(self, computation: ComputationProto, start: int, path: Path) -> set[Path] | None:
        """Elements of the computation's result that are the buffer; None: something overwrites it."""
        users, results = self._users_in(computation), set[Path]()
        pending, seen = [(start, path)], set[tuple[int, Path]]()
        while pending:
            position = pending.pop()
            if position in seen:
                continue
            seen.add(position)
            identifier, path = position
            if identifier == computation.root_id:
                results.add(path)
            for user, number in users.get(identifier, ()):
                forwarded = self._forwarded(user, number, path)
                if forwarded is None:
                    return None
                pending += [(user.id, element) for element in forwarded]
        return results

    def _users_in(self, computation: ComputationProto) -> dict[int, list[tuple[InstructionProto, int]]]:
        found = self._users.get(computation.id)
        if found is None:
            found = self._users[computation.id] = {}
            for user in computation.instructions[:]:
                for number, operand in enumerate(user.operand_ids[:]):
                    found.setdefault(operand, []).append((user, number))
        return found

    def _forwarded(self, user: InstructionProto, number: int, path: Path) -> set[Path] | None:
        """Elements of the user's result that are the buffer; None: the user overwrites it."""
        opcode = user.opcode
        if opcode == "get-tuple-element":
            return {path[1:]} if path[0] == user.tuple_index else set()
        if opcode == "tuple":
            return {(number, *path)}
        if opcode in FORWARDS:
            return {path}
        if opcode == "while":
            return self._through_loop(user, path)
        if opcode == "call":
            return self._inside(self._module.computations[user.called_computation_ids[0]], number, path)
        if opcode == "conditional":  # its first operand chooses the branch
            branches = user.called_computation_ids[:]
            return self._inside(self._module.computations[branches[number - 1]], 0, path) if number else set()
        is_overwritten = writes_in_place(self._module, user) and number in written_operands(self._module, user)
        return None if is_overwritten else set()

    def _through_loop(self, loop: InstructionProto, path: Path) -> set[Path] | None:
        body, condition = (self._module.computations[called] for called in loop.called_computation_ids[:])
        if body.id not in self._variant:
            self._variant[body.id] = frozenset(variant_elements(body))
        if not path or path[0] in self._variant[body.id]:
            return None
        if any(self._inside(called, 0, path) is None for called in (body, condition)):
            return None
        return {path}

    def _inside(self, called: ComputationProto, number: int, path: Path) -> set[Path] | None:
        (parameter,) = (i for i in _parameters(called) if i.parameter_number == number)
        return self.results(called, parameter.id, path)


def _parameters(computation: ComputationProto) -> Iterator[InstructionProto]:
    return (instruction for instruction in computation.instructions[:] if instruction.opcode == "parameter")
