"""Analyses: facts about a module and its flat graphs, computed without changing them. Knows no patterns, no kernels.

`flat_graph.py` expands every fusion of a computation into one dataflow graph, in which each value exists once and
knows its origin; all matching works on it. `binding_time.py` separates static from dynamic values, `strided_view.py`
turns layouts, transposes, broadcasts and slices into strides, `peeling.py` names what may be peeled on the way,
`dot_dimensions.py` names a dot's dimensions by role, `stacked_slices.py` finds slices of stacked arrays,
`scalar_constants.py` evaluates what is known at compile time.
`in_place_updates.py` and `buffer_aliasing.py` read XLA's aliasing decisions, `buffer_uses.py` says who writes and reads
a buffer, `reachability.py` and `topological_order.py` answer dependency questions, `loop_nest.py` gives trip counts,
`loop_indices.py` the values of a loop's counters, `updated_stacks.py` finds stacks that a loop may change in place,
`counted_loop.py` the role of each value that a counted loop carries,
`live_range.py` says when a value needs a buffer, `buffer_assignment.py` has such values share memory, and
`fresh_buffers.py` estimates large buffers.
"""
