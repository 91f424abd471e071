"""Kernel selection: which match a vendor kernel computes, and why.

`decide.py` trusts, in this order, what the user forces, what was measured here (`measurements.py`), the cost model,
stock XLA. `strategies.py` holds the plan strategies of a whole program, which say of each region whether its
measurement decides it. `candidate.py` enumerates a match's variants (shorter epilogues, alternative kernels) and
shortens an epilogue until the kernel supports it. `family_cost_models.py` holds the cost models by kernel family,
`cost_model.py` and `linear_algebra_cost_model.py` among them. `context.py` is the part of a measurement's key that
describes machine and versions. Everything is passed in as values: the package sees no module and measures nothing.
"""
