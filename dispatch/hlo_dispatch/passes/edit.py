"""Putting the plans of a module into effect: computations rebuilt, unused ones dropped."""

from __future__ import annotations

from hlo_dispatch.analysis.buffer_aliasing import Sharing
from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.emit import Emitter, KernelCall
from hlo_dispatch.passes.module_rewriter import Edit
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.passes.write_after_read_hazards import CannotRebuild
from hlo_dispatch.pattern import Table


def apply_plans(module: Module, plans: list[ComputationPlan], table: Table, threads: int) -> set[int]:
    """Edit `module` in place. A plan whose computation cannot be rebuilt becomes one of refusals.

    Returns:
        ids of the computations that are new or were rebuilt.
    """
    edits: dict[int, Edit] = {}
    sharing = Sharing(module)
    for plan in plans:
        calls = [
            KernelCall(c.match, table.kernels[c.match.kernel].target, c.attributes, c.scratch_bytes, c.backend_config)
            for c in plan.dispatched
        ]
        if not calls:
            continue
        try:
            emitter = Emitter(module, plan.graph, calls, threads, sharing)
            edits[plan.graph.computation.id] = emitter.edit()
            plan.calls = emitter.names
        except CannotRebuild as problem:
            plan.give_up(str(problem))
    changed = set(edits) | {new.id for edit in edits.values() for new in edit.computations}
    if edits:
        put_back(module, edits)
    return changed


def put_back(module: Module, edits: dict[int, Edit]) -> None:
    """Exchange the rebuilt computations; new fused ones stand right before their caller, callees first."""
    computations = module.proto.computations
    order: dict[int, int] = {}
    for computation in list(computations):
        edit = edits.get(computation.id)
        if edit is not None:
            # Messages that are taken out of their list live on as long as they are referred to.
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
    # Sorted in place, so that none of them is copied.
    computations.sort(key=lambda computation: order[computation.id])
    module.computations = {c.id: c for c in computations}
