"""Narrow stacks: a loop carries a stacked array in its own type, where XLA carries it widened.

XLA hoists the conversion of a scan's bf16 weights to f32 (jax 0.10.2), or of s4 to s8, out of the loop: each run of the
program widens all layers, and each iteration reads a slice that is two or four times as large. Slicing and widening
commute, and rounding what was just widened changes no element, so the loop takes the narrow array and widens slices. It
takes a copy where something overwrites the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.buffer_uses import BufferUses
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.analysis.in_place_updates import writes_in_place, written_operands
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import can_change_state, replace_elements, retype

_WIDE = {"bf16": frozenset(("f32",)), "f16": frozenset(("f32",)), "s4": frozenset(("s8",)), "u4": frozenset(("u8",))}
"""Element type → types that XLA widens stacks of it to, which represent all of its values."""


def narrow_stacks(module: Module, context: PassContext) -> set[int]:
    """Let loops carry the narrow arrays whose slices they read."""
    changed: set[int] = set()
    loops: list[tuple[int, int]] = []
    for computation, is_small in module.control_flow_computations() if "while" in module.opcodes else ():
        if is_small or "while" not in module.opcodes_of(computation.id):
            continue
        by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
        loops += [
            (computation.id, instruction.id)
            for instruction in by_id.values()
            if instruction.opcode == "while" and _takes_widened(module, instruction, by_id)
        ]
    for caller, loop in loops:
        changed |= _Loop(module, caller, loop, context).narrow()
    return changed


@dataclass(frozen=True)
class _Widening:
    """An array that is widened in front of a loop."""

    instruction: InstructionProto
    """The loop fusion, or the convert."""
    source: int
    """Id of the narrow array: of an instruction of the fusion's computation, or of the convert's operand."""
    shape: Shape
    """What the loop may carry instead: the narrow type in the wide array's dimensions and layout."""
    is_computed: bool
    """Whether the fusion computes the narrow array, not only widens it."""


class _Loop:
    """One loop, and the drafts of what changes with its state."""

    def __init__(self, module: Module, caller: int, loop: int, context: PassContext) -> None:
        self._module, self._context = module, context
        self._caller = Editor(module, module.computations[caller])
        self._loop = self._caller.instructions[loop]
        body, self._condition = (module.computations[called] for called in self._loop.called_computation_ids[:])
        self._body = Editor(module, body)
        self._fused: dict[int, Editor] = {}
        """Id of a fused computation → its draft."""

    def narrow(self) -> set[int]:
        """Edit; returns ids of the computations that changed."""
        widenings = self._widenings()
        if not widenings or not self._can_change_state():
            return set()
        elements = {
            number: self._narrow_source(widening)
            for number, widening in widenings.items()
            if self._is_narrowed_in_body(number, widening.shape)
        }
        if not elements:
            return set()
        state = replace_elements(self._caller, self._loop, 0, elements)
        self._caller.remove_dead_code({widening.instruction.id for widening in widenings.values()})
        self._context.keep_stock(self._module)
        changed = commit(self._module, [*self._fused.values(), self._body, self._caller])
        retype(self._body.computation, state.shape, is_result=True)
        retype(self._condition, state.shape, is_result=False)
        for fused in self._fused.values():
            _retype_signature(fused.computation)
        return changed | {self._condition.id}

    # --- analysis ---------------------------------------------------------------------------------

    def _widenings(self) -> Mapping[int, _Widening]:
        """Index in the loop's state → the widening that computes this element, which nothing else reads."""
        caller, loop = self._caller, self._loop
        state = caller.instructions[loop.operand_ids[0]]
        if state.opcode != "tuple":
            return {}
        used = {i.tuple_index for i in self._condition.instructions[:] if i.opcode == "get-tuple-element"}
        used.update(caller.instructions[user].tuple_index for user in caller.users(loop.id))
        operands = state.operand_ids[:]
        found: dict[int, _Widening] = {}
        for number, value in enumerate(operands):
            is_alone = number not in used and operands.count(value) == 1
            widening = _widening(self._module, caller.instructions[value], caller.instructions) if is_alone else None
            if widening is not None and caller.users(value) == [state.id]:
                found[number] = widening
        return found

    def _is_kept(self, value: int) -> bool:
        """Whether nothing overwrites the narrow array's buffer, which the loop did not read until now."""
        caller = self._caller
        uses = BufferUses(caller.instructions, caller.users)
        for path, number in BufferAliasing(self._module).pairs(caller.computation):
            elements = uses.parameter_elements(path)
            result = caller.root_id if number is None else caller.root.operand_ids[number]
            if result not in elements and value in {alias for element in elements for alias in uses.aliases(element)}:
                return False
        definer = uses.definer(value)
        return all(definer != uses.definer(written) for written in self._overwritten(uses))

    def _overwritten(self, uses: BufferUses) -> Iterator[int]:
        """Values of the caller whose buffers an in-place update may overwrite, one in a loop included."""
        for identifier, instruction in self._caller.instructions.items():
            if writes_in_place(self._module, instruction):
                yield from uses.overwritten(self._module, identifier, written_operands(self._module, instruction))

    def _narrow_operand(self, widening: _Widening) -> InstructionProto:
        """The caller's instruction that is the narrow array."""
        identifier = widening.source
        if widening.instruction.opcode == "fusion":
            fused = self._module.computations[widening.instruction.called_computation_ids[0]]
            parameter = next(inner for inner in fused.instructions[:] if inner.id == identifier)
            identifier = widening.instruction.operand_ids[parameter.parameter_number]
        return self._caller.instructions[identifier]

    def _can_change_state(self) -> bool:
        graph = FlatGraph(self._module, self._body.computation)
        try:
            return can_change_state(self._module, self._caller, self._loop, 0, graph)
        finally:
            graph.break_reference_cycles()

    # --- editing ----------------------------------------------------------------------------------

    def _narrow_source(self, widening: _Widening) -> InstructionProto:
        """Emit the narrow array, with the wide one's dimensions."""
        instruction, caller = widening.instruction, self._caller
        if not widening.is_computed:
            builder, narrow = caller.before(instruction.id, instruction), self._narrow_operand(widening)
            if not self._is_kept(narrow.id):
                narrow = builder.make("copy", narrow.shape, narrow.id, stem="stack_copy")
            if shape_of(narrow.shape) == widening.shape:
                return narrow
            return builder.make("bitcast", widening.shape, narrow.id, stem="narrow_stack")
        fused = self._draft(instruction.called_computation_ids[0])
        fused.root_id = fused.last().make("bitcast", widening.shape, widening.source, stem="narrow_stack").id
        fused.keep_reachable_from_root()
        narrow = caller.mutable(instruction.id)
        narrow.shape.CopyFrom(widening.shape.to_proto())
        if widening.shape.packed_bits and widening.shape.dimensions[widening.shape.minor_to_major[0]] % 2:
            narrow.backend_config = b""  # two tasks could write to one byte
        return narrow

    def _is_narrowed_in_body(self, number: int, shape: Shape) -> bool:
        """Make the body read slices of the narrow array; False, and no change, where it reads more than slices."""
        body = self._body
        root = body.root.operand_ids[:]
        elements = [
            i for i in body.instructions.values() if i.opcode == "get-tuple-element" and i.tuple_index == number
        ]
        elements = [i for i in elements if body.instructions[i.operand_ids[0]].opcode == "parameter"]
        if len(elements) != 1 or root[number] != elements[0].id or root.count(elements[0].id) != 1:
            return False
        element = elements[0].id
        readers = [user for user in body.users(element) if user != body.root_id]
        if not readers or not all(self._reads_slices(reader, element) for reader in readers):
            return False
        for reader in readers:
            self._narrow_reader(reader, element, shape)
        body.mutable(element).shape.CopyFrom(shape.to_proto())
        return True

    def _reads_slices(self, reader: int, value: int) -> bool:
        """Whether an instruction of the body reads a value by dynamic-slices alone."""
        instruction = self._body.instructions[reader]
        operands = instruction.operand_ids[:]
        if operands.count(value) != 1:
            return False
        if instruction.opcode == "dynamic-slice":
            return operands[0] == value
        if instruction.opcode != "fusion" or instruction.fusion_kind != "kLoop":
            return False
        fused = self._draft(instruction.called_computation_ids[0])
        parameter = _parameter(fused, operands.index(value))
        users = [fused.instructions[user] for user in fused.users(parameter)]
        return all(u.opcode == "dynamic-slice" and u.operand_ids[:].count(parameter) == 1 for u in users)

    def _narrow_reader(self, reader: int, value: int, shape: Shape) -> None:
        instruction = self._body.instructions[reader]
        if instruction.opcode == "dynamic-slice":
            _narrow_slice(self._body, reader, shape)
            return
        fused = self._draft(instruction.called_computation_ids[0])
        parameter = _parameter(fused, instruction.operand_ids[:].index(value))
        for user in fused.users(parameter):
            _narrow_slice(fused, user, shape)
        fused.mutable(parameter).shape.CopyFrom(shape.to_proto())

    def _draft(self, computation: int) -> Editor:
        if computation not in self._fused:
            self._fused[computation] = Editor(self._module, self._module.computations[computation])
        return self._fused[computation]


def _takes_widened(module: Module, loop: InstructionProto, by_id: Mapping[int, InstructionProto]) -> bool:
    """Whether a part of a loop's initial state is widened in front of it."""
    state = by_id[loop.operand_ids[0]]
    return state.opcode == "tuple" and any(
        _widening(module, by_id[operand], by_id) is not None for operand in state.operand_ids[:]
    )


def _widening(module: Module, instruction: InstructionProto, by_id: Mapping[int, InstructionProto]) -> _Widening | None:
    """`by_id`: the instructions of its computation."""
    if instruction.opcode not in ("fusion", "convert"):
        return None
    wide = shape_of(instruction.shape)
    if not any(wide.element_type in types for types in _WIDE.values()) or len(wide.dimensions) < 2:
        return None
    node = instruction
    if instruction.opcode == "fusion":
        if instruction.fusion_kind != "kLoop":
            return None
        fused = module.computations[instruction.called_computation_ids[0]]
        by_id = {inner.id: inner for inner in fused.instructions[:]}
        node = by_id[fused.root_id]
        while node.opcode == "bitcast":
            node = by_id[node.operand_ids[0]]
    if node.opcode != "convert":
        return None
    source = by_id[node.operand_ids[0]]
    narrow = shape_of(source.shape)
    if wide.element_type not in _WIDE.get(narrow.element_type, ()):
        return None
    shape = replace(wide, element_type=narrow.element_type, packed_bits=narrow.packed_bits)
    while source.opcode == "bitcast" and shape_of(by_id[source.operand_ids[0]].shape).bytes == narrow.bytes:
        source = by_id[source.operand_ids[0]]
    is_computed = instruction.opcode == "fusion" and source.opcode != "parameter"
    return _Widening(instruction, source.id, shape, is_computed)


def _retype_signature(fused: ComputationProto) -> None:
    """Set the types of a fused computation's parameters and result in its signature; those that we make have none."""
    signature = fused.program_shape
    for instruction in fused.instructions[:] if signature.parameters else ():
        if instruction.opcode == "parameter":
            signature.parameters[instruction.parameter_number].CopyFrom(instruction.shape)
        if instruction.id == fused.root_id:
            signature.result.CopyFrom(instruction.shape)


def _parameter(fused: Editor, number: int) -> int:
    return next(i.id for i in fused.parameters() if i.parameter_number == number)


def _narrow_slice(editor: Editor, identifier: int, stack: Shape) -> None:
    """Slice the narrow array and widen the slice; what rounds it back reads it as it is."""
    wide = editor.instructions[identifier]
    shape = replace(shape_of(wide.shape), element_type=stack.element_type, packed_bits=stack.packed_bits)
    builder = editor.before(identifier, wide)
    narrow = builder.clone(wide, wide.operand_ids[:])
    narrow.shape.CopyFrom(shape.to_proto())
    for user in editor.users(identifier):
        rounded = editor.instructions[user]
        if rounded.opcode == "convert" and shape_of(rounded.shape) == shape:
            editor.replace_all_uses_with(user, narrow.id)
            editor.redirect_control_dependencies({user: narrow.id})
            editor.erase(user)
    widened = builder.make("convert", shape_of(wide.shape), narrow.id, stem="widened_slice")
    editor.replace_all_uses_with(identifier, widened.id)
    editor.redirect_control_dependencies({identifier: narrow.id})
    editor.erase(identifier)
    if not editor.users(widened.id) and editor.root_id != widened.id:
        editor.erase(widened.id)
