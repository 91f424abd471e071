"""Result tuples: the tuple of a call or a sort that is a computation's result is taken apart and put together again.

A kernel call in its place has a scratch buffer among its results, so that its tuple is another one. The elements are
values that any call can give.
"""

from __future__ import annotations

from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto
from hlo_dispatch.passes.context import PassContext

_SEVERAL_RESULTS = frozenset(("custom-call", "sort"))


def take_result_tuples_apart(module: Module, context: PassContext) -> set[int]:
    """Make the result of a program or of a branch a tuple of elements, where a call or a sort gives it as a whole."""
    if _SEVERAL_RESULTS.isdisjoint(module.opcodes):
        return set()
    drafts = [_apart(module, computation) for computation, _ in module.control_flow_computations()]
    return commit(module, [draft for draft in drafts if draft is not None])


def _apart(module: Module, computation: ComputationProto) -> Editor | None:
    root = next(one for one in computation.instructions[:] if one.id == computation.root_id)
    shapes = root.shape.tuple_shapes[:]
    if root.opcode not in _SEVERAL_RESULTS or not shapes or any(shape.tuple_shapes for shape in shapes):
        return None
    editor = Editor(module, computation)
    builder = editor.last()
    elements = [builder.get_tuple_element(root.id, number, shape).id for number, shape in enumerate(shapes)]
    editor.root_id = builder.tuple(elements, shapes).id
    return editor
