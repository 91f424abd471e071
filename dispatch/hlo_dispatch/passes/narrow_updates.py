"""Narrow in-place updates: an update of a bf16 or f16 buffer that XLA computes in f32 is done in the buffer's own type.

Some releases of XLA:CPU widen the whole buffer, update it and round all of it back: each update of a cache costs what
the cache holds. Widening and rounding back change no element, so the rows alone are rounded, and the buffer is updated
where it lies. The result must be what that buffer becomes, and every other reader of it must run before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing, Pair
from hlo_dispatch.analysis.buffer_uses import BufferUses
from hlo_dispatch.analysis.reachability import ancestors
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import HALF_TYPES, shape_of
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported, resolve_hazards


def narrow_updates(module: Module, context: PassContext) -> set[int]:
    """Narrow the updates of buffers that loops carry or that are donated."""
    aliasing: BufferAliasing | None = None
    editors: list[Editor] = []
    is_possible = "dynamic-update-slice" in module.opcodes
    for computation, is_small in module.control_flow_computations() if is_possible else ():
        updates = [] if is_small else _wide_updates(module, computation)
        if updates:
            aliasing = aliasing or BufferAliasing(module)
            editor = _narrowed(module, computation, updates, aliasing.certain_pairs(computation))
            if editor is not None:
                editors.append(editor)
    if editors:
        context.keep_stock(module)
    return commit(module, editors)


@dataclass(frozen=True)
class _WideUpdate:
    """A fusion that widens a buffer, updates it and rounds it back."""

    fusion: InstructionProto
    fused: ComputationProto
    buffer: InstructionProto
    """The parameter that is updated."""
    wide: InstructionProto
    """The buffer in f32."""
    update: InstructionProto
    root: InstructionProto


def _wide_updates(module: Module, computation: ComputationProto) -> list[_WideUpdate]:
    found: list[_WideUpdate] = []
    for fusion in computation.instructions[:]:
        if fusion.opcode == "fusion" and fusion.fusion_kind == "kLoop" and not fusion.control_predecessor_ids:
            update = _wide_update(fusion, module.computations[fusion.called_computation_ids[0]])
            if update is not None:
                found.append(update)
    return found


def _wide_update(fusion: InstructionProto, fused: ComputationProto) -> _WideUpdate | None:
    if shape_of(fusion.shape).element_type not in HALF_TYPES:
        return None
    by_id = {instruction.id: instruction for instruction in fused.instructions[:]}
    root = by_id[fused.root_id]
    update = by_id[root.operand_ids[0]] if root.opcode == "convert" else root
    wide = by_id[update.operand_ids[0]] if update.opcode == "dynamic-update-slice" else root
    buffer = by_id[wide.operand_ids[0]] if wide is not root and wide.opcode == "convert" else root
    if buffer.opcode != "parameter" or shape_of(buffer.shape) != shape_of(root.shape):
        return None
    operands = [operand for inner in by_id.values() for operand in inner.operand_ids[:]]
    is_only_updated = all(operands.count(one.id) == 1 for one in (buffer, wide, update))
    if not is_only_updated or any(inner.opcode == "fusion" for inner in by_id.values()):
        return None
    return _WideUpdate(fusion, fused, buffer, wide, update, root)


def _narrowed(
    module: Module, computation: ComputationProto, updates: list[_WideUpdate], pairs: list[Pair]
) -> Editor | None:
    """A draft with the updates narrowed; None where there is none, or where a reader would need a copy."""
    editor = Editor(module, computation)
    uses = BufferUses(editor.instructions, editor.users)
    becomes = {element: result for path, result in pairs for element in uses.parameter_elements(path)}
    written: dict[int, set[int]] = {}
    for update in updates:
        number = update.buffer.parameter_number
        buffer, result = update.fusion.operand_ids[number], update.fusion.id
        root = editor.root
        if buffer not in becomes or update.fusion.operand_ids[:].count(buffer) > 1:
            continue
        place = becomes[buffer]
        if (root.id if place is None else root.operand_ids[place]) != result:
            continue
        fused = _narrow_computation(module, update)
        editor.computations.append(fused)
        made = editor.before(result, update.fusion).fusion(
            fused, update.fusion.operand_ids[:], update.fusion.shape, stem="narrow_update"
        )
        editor.replace_all_uses_with(result, made.id)
        editor.redirect_control_dependencies({result: made.id})
        editor.erase(result)
        # XLA wrote to another buffer until now: its own readers of this one wait for nothing yet.
        readers = [reader for reader in uses.readers(buffer) if reader != made.id]
        if any(made.id in ancestors(editor.instructions, reader) for reader in readers):
            return None
        for reader in readers:
            editor.add_control_dependency(made.id, reader)
        written[made.id] = {number}
    if not written:
        return None
    before = set(editor.instructions)
    try:
        resolve_hazards(editor, pairs, written)
    except RewriteUnsupported:
        return None
    return editor if before == set(editor.instructions) else None


def _narrow_computation(module: Module, update: _WideUpdate) -> ComputationProto:
    builder = InstructionBuilder.of_new_computation(module, "narrow_update", update.fused)
    ids: dict[int, int] = {}
    for inner in update.fused.instructions[:]:
        if inner.id not in (update.wide.id, update.update.id, update.root.id):
            ids[inner.id] = builder.clone(inner, [ids[operand] for operand in inner.operand_ids[:]]).id
    rows = next(inner for inner in update.fused.instructions[:] if inner.id == update.update.operand_ids[1])
    narrow = replace(shape_of(rows.shape), element_type=shape_of(update.root.shape).element_type)
    rounded = builder.make("convert", narrow, ids[rows.id])
    starts = [ids[start] for start in update.update.operand_ids[2:]]
    root = builder.make("dynamic-update-slice", update.root.shape, ids[update.buffer.id], rounded.id, *starts)
    return builder.finished(root.id)
