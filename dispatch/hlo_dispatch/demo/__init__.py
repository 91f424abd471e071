"""Demonstration: real models, stock against dispatched, side by side in one process.

`models.py` builds the workloads, `compare.py` compiles and measures one both ways, `seed.py` is the smallest
example, `run.py` runs them for `hlo-dispatch demo`. The benchmarks import the same modules.
"""
