"""Execution of extracted modules: compilation, random inputs, time estimates, deadlines and the watchdog.

`executable.py` compiles a module exactly as it is, from inside a compile of JAX's: a trivial program of the same
signature is the placeholder, and the hook substitutes the module. What would not end in time is not started
(`time_estimate.py`, `running_time.py`), and what overruns is not waited for (`watchdog.py`). `split_executable.py`
runs a module with frozen weights as prologue and steady-state program.
"""
