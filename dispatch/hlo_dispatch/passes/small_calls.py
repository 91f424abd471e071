"""Undoing of small calls: XLA compiles a call that reaches a kernel call like any other.

XLA:CPU compiles a small call, a `call` with a frontend attribute that says so, into a single function for one thread.
That spares short loops the overhead of XLA's runtime, but cannot contain custom-calls.
"""

from __future__ import annotations

from hlo_dispatch.ir.module import SMALL_CALL, Module, is_small_call
from hlo_dispatch.passes.context import PassContext


def undo_small_calls(module: Module, context: PassContext) -> set[int]:
    """Remove the attribute of each small call that reaches a computation with kernel calls."""
    dispatched = {plan.graph.computation.id for plan in context.plans if plan.dispatched}
    reaching = {computation.id for computation, small in module.control_flow_computations() if small} & dispatched
    undone: set[int] = set()
    if not reaching:
        return undone
    for computation in module.proto.computations[:]:  # callees come first
        for instruction in computation.instructions[:]:
            if not reaching.isdisjoint(instruction.called_computation_ids[:]):
                reaching.add(computation.id)
                if is_small_call(instruction):
                    attributes = instruction.frontend_attributes.map
                    place = next(place for place, entry in enumerate(attributes) if entry.key == SMALL_CALL)
                    del attributes[place]
                    undone.add(computation.id)
    module.index()
    return undone
