"""Application of a module's plans: replaces the rewritten computations and drops the unreachable ones."""

from __future__ import annotations

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.emit import Emitter, KernelCall
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported
from hlo_dispatch.pattern import Table


def apply_plans(module: Module, plans: list[ComputationPlan], table: Table, threads: int) -> set[int]:
    """Edit `module` in place. Refuses the calls of a computation that cannot be rewritten.

    Returns:
        ids of the new and the rewritten computations.
    """
    edits: dict[int, Edit] = {}
    aliasing = BufferAliasing(module)
    for plan in plans:
        calls = [
            KernelCall(c.match, table.kernels[c.match.kernel].target, c.attributes, c.scratch_bytes, c.backend_config)
            for c in plan.dispatched
        ]
        if not calls:
            continue
        try:
            emitter = Emitter(module, plan.graph, calls, threads, aliasing)
            edits[plan.graph.computation.id] = emitter.edit()
            plan.calls = emitter.names
        except RewriteUnsupported as problem:
            plan.refuse_dispatched(str(problem))
    changed = set(edits) | {new.id for edit in edits.values() for new in edit.computations}
    if edits:
        replace_computations(module, edits)
    return changed


def replace_computations(module: Module, edits: dict[int, Edit]) -> None:
    """Replace rewritten computations; their new fused computations precede them, callees first."""
    computations = module.proto.computations
    order: dict[int, int] = {}
    for computation in list(computations):
        edit = edits.get(computation.id)
        if edit is not None:
            # A protobuf message that leaves its list lives as long as a reference to it.
            del computation.instructions[:]
            computation.instructions.extend(edit.instructions)
            computation.root_id = edit.root_id
            computations.extend(edit.computations)
            for new in edit.computations:
                order[new.id] = len(order)
        order[computation.id] = len(order)
    module.computations = {c.id: c for c in computations}
    reached = module.reached()
    for place in reversed(range(len(computations))):
        if computations[place].id not in reached:
            del computations[place]
    # Sorting in place copies no message.
    computations.sort(key=lambda computation: order[computation.id])
    module.computations = {c.id: c for c in computations}
