"""Accumulation code motion: adds what a loop accumulates behind it, by one product over all iterations.

In a scan's backward pass dW += x_t^T g_t is a product with few rows in each iteration, and a read and a write of all of
dW. Behind the loop it is one product that contracts iterations and rows. It precedes matching, which sees that product
like any other.

The sum's order changes as in every dispatched product; a half-precision accumulator is rounded once, not once in each
iteration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hlo_dispatch.analysis.counted_loop import CountedLoop
from hlo_dispatch.analysis.flat_graph import FlatGraph, flat_graphs
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.passes.accumulation_code_motion.loop_body import StateLayout, draft_body
from hlo_dispatch.passes.accumulation_code_motion.motion_plan import MotionPlan, plan_motion
from hlo_dispatch.passes.accumulation_code_motion.moved_sums import MovedSums
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import can_change_state, commit_loop
from hlo_dispatch.passes.small_calls import LEAST_BYTES_MOVED, inline_small_loops
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported


def move_accumulations(module: Module, context: PassContext) -> set[int]:
    """Move the accumulations of counted loops behind them where that moves fewer bytes, inner loops first."""
    changed: set[int] = set()
    if context.planner.policy == "never" or "while" not in module.opcodes:
        return changed
    # Callees precede callers.
    for caller in [computation.id for computation, _ in module.control_flow_computations()]:
        changed |= inline_small_loops(module, caller, lambda loop: _repays_inlining(module, loop), context)
        loops = module.computations[caller].instructions[:] if "while" in module.opcodes_of(caller) else ()
        for loop in [i.id for i in loops if i.opcode == "while" and _may_accumulate(module, i)]:
            with contextlib.suppress(RewriteUnsupported), flat_graphs(module) as graph_of:
                if (drafts := _drafts(module, graph_of, caller, loop, context.threads)) is not None:
                    context.keep_stock(module)
                    context.is_moved = True
                    changed |= commit_loop(module, *drafts, loop)
    return changed


def _repays_inlining(module: Module, loop: InstructionProto) -> bool:
    """Whether the sums of a loop in a small call that can move are large."""
    if not _may_accumulate(module, loop):
        return False
    with flat_graphs(module) as graph_of:
        plan = _plan(module, graph_of, loop)
        return plan is not None and plan.bytes_saved >= LEAST_BYTES_MOVED


def _may_accumulate(module: Module, instruction: InstructionProto) -> bool:
    """Whether a loop is a counted one with an element that an addition may have replaced."""
    if trip_count(instruction) is None:
        return False
    body = module.computations[instruction.called_computation_ids[0]]
    by_id = {inner.id: inner for inner in body.instructions[:]}
    root = by_id[body.root_id]
    for index, identifier in enumerate(root.operand_ids[:] if root.opcode == "tuple" else ()):
        result = by_id[identifier]
        if not _adds(module, result) or len(instruction.shape.tuple_shapes[index].dimensions) < 2:
            continue
        operands = [by_id[operand] for operand in result.operand_ids[:]]
        if any(o.opcode in ("get-tuple-element", "copy") and o.shape == result.shape for o in operands):
            return True
    return False


def _adds(module: Module, instruction: InstructionProto) -> bool:
    opcode = instruction.opcode
    if opcode != "fusion":
        return opcode == "add"
    opcodes = module.opcodes_of(instruction.called_computation_ids[0])
    return "add" in opcodes and "dynamic-update-slice" not in opcodes


def _drafts(
    module: Module, graph_of: Callable[[int], FlatGraph], caller_id: int, loop_id: int, threads: int
) -> tuple[Editor, Editor] | None:
    """Drafts of a loop's body and of the computation around it; None where nothing moves.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on a moved one.
    """
    caller = Editor(module, module.computations[caller_id])
    instruction = caller.instructions[loop_id]
    plan = _plan(module, graph_of, instruction)
    if plan is None or not can_change_state(module, caller, instruction, 0, plan.loop.body):
        return None
    graph = graph_of(caller_id)  # only here: a program has one large caller of many loops
    layout = StateLayout.of(plan)
    body = draft_body(module, plan, layout, threads)
    return body, MovedSums(module, plan, graph, layout, threads).draft()


def _plan(module: Module, graph_of: Callable[[int], FlatGraph], instruction: InstructionProto) -> MotionPlan | None:
    """The motion plan of a loop; None where nothing moves."""
    loop = CountedLoop.of(instruction, graph_of(instruction.called_computation_ids[0]))
    if loop is None:
        return None
    condition = module.computations[instruction.called_computation_ids[1]].instructions[:]
    plan = plan_motion(instruction, loop, {i.tuple_index for i in condition if i.opcode == "get-tuple-element"})
    return plan if plan.accumulators else None
