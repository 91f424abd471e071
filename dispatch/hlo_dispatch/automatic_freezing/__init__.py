"""Automatic freezing: a jit that freezes the arguments that its caller passes again and again.

JAX's arrays are immutable: an argument that is the same object as in the call before has the same elements.
`jit.py` is `jit`, `jax.jit` with this; `call_form.py` has a call's leaves, and `leaf_check.py` compares them with those
of a frozen program. `call_site.py` is the state of the calls of
one structure: `observed_leaves.py` finds the leaves that stay the same objects, `eligibility.py` says which may be
frozen, `traced_call.py` makes the call's jaxpr a function of static and dynamic leaves, `preparation.py` has the jobs
that prepare it, `leaf_program.py` compiles it by `freezing/` and holds it as long as those leaves live,
`plain_program.py` is the program without frozen leaves, `trial.py` compares both on the caller's own calls.
`background.py` has the threads that prepare and that wait; `memory_budget.py` and `mode.py` are the environment's
settings, `services.py` is what tests replace; `overview.py` is what `statistics()` and the report say, `prospect.py`
what `explain` says of a call that was not made.
"""
