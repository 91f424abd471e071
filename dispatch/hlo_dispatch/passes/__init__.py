"""Passes: plan every kernel call of a module, then edit, then verify. `hlo_dispatch/pipeline.py` has their order.

A pass is a function of (`Module`, `PassContext`) that edits the module in place and returns ids of the computations
that changed. `context.py` is what passes need and leave behind; `pass_runner.py` runs a list of them, timed, and
verified one by one in strict mode; `pass_dump.py` writes the module behind each.

1. Before anything is matched, `accumulation_code_motion/` computes what a loop accumulates, a scan's weight gradients,
   behind it, `input_product_code_motion.py` multiplies what a loop slices with the loop's weights in front of it,
   `small_loops.py` makes small calls of long loops of small iterations, `reassembled_arrays.py` updates the
   parts of an array instead of putting it together again, `narrow_updates.py` updates bf16 buffers without widening
   them, `narrow_stacks.py` lets loops carry stacks of bf16 or four bits that XLA widens in front of them, and
   `stacks_in_place.py` has loops change stacked caches where they lie (`loop_state.py` edits a loop's tuple).
   `match_and_select.py` flattens the module, `loop_weights.py` finds what long loops only read, so that it is prepacked
   in front of them, and the module is planned. `mask_redirection.py` prepares each flat graph, which matching does not
   change. `plan.py` walks it: recurrent layers and library routines first, then attention, structural patterns and
   anchor ops, then the patterns that an anchor op outweighed, and elementwise regions that no other match owns;
   `ownership.py` detects conflicts. `support_query.py` asks kernels for support and prefetches the likely
   questions. `planner.py` says what to look for and how to select: a profile or a single-call measurement is the
   same pass with another planner.
2. `glue_ops.py` plans ops that only pay inside a call group; `half_precision_results.py` lets a call write half
   precision where only glue ops read its result unrounded.
3. `program_tuner.py` chooses among plan strategies under the policies `measure` and `stored`.
4. `dispatch.py` applies the plans; `module_rewriter.py` drafts each computation without the matched instructions,
   `stacked_operands.py` finds the operands that a call reads as slices of stacked arrays, and
   `write_after_read_hazards.py` adds control dependencies or copies. What cannot be rewritten becomes a refusal and
   stays as it is. `async_padding.py` keeps a program asynchronous that would look cheap to XLA's client.
5. `stride_propagation/`, `partition/` and `call_groups/` work on the module's kernel calls; `huge_page_advice.py`
   inserts huge-page advice as the first instruction of a program with large buffers.
6. `region_reports.py` writes the report; the verifier of `ir/` checks every changed computation.
"""
