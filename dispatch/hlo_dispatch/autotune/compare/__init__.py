"""Comparison of stock XLA and kernels: result validation, interleaved timing, sequential tests.

`measure.py` measures one region in all its variants. `validation.py` compares results, in float64 where the two sides
differ (`float64_reference.py`). `timing.py` runs interleaved trials until `sequential_test.py` has an answer; samples
that other work disturbed do not count (`disturbance.py`). `finalists.py` compares whole programs among themselves.
"""
