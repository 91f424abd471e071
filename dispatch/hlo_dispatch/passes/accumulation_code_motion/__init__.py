"""Accumulation code motion: sums that a loop accumulates are computed behind it.

`accumulators.py` finds the elements of a loop's tuple that are only added to, `motion_plan.py` chooses those that move
and the values that are stacked for them, `loop_body.py` and `moved_sums.py` draft the two computations, and
`code_motion.py` is the pass.
"""
