"""Partition of a module by binding time: a prologue that runs once, on weights, and the steady-state program.

`prepacking.py` inserts a reorder call for each frozen weight, or for each slice of stacked weights.
`loop_invariant_code_motion.py` hoists static values out of loop bodies and branches, innermost first.
`frontier.py` decides which static values are worth keeping, `split_at_frontier.py` splits there, and
`buffer_coalescing.py` makes one array of small preprocessed values. `constant_weights.py` treats large constants of any
module as frozen weights while it is compiled. `pipeline.py` has their order.
"""
