"""Region extraction: a match's region, or a whole program, as a module of its own that can be compiled and timed.

`region.py` decides what belongs to the region (`enclosing_fusion_slice.py` where a fusion holds other ops too,
`library_call_slice.py` for library calls, `operand_ops.py` and `context_ops.py` around it) and `writer.py` writes it;
`digest.py` is its canonical form. `loop_harness.py` puts a region of a loop into a `while` whose trip count is an
argument; `trip_count_reduction.py` shortens a program's loops for its trial, those in small calls by
`loop_counter.py`, and `leading_part.py` leaves out what repeats the program's first layers.
"""
