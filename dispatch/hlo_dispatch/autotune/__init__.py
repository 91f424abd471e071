"""Autotuning: measures regions and whole programs, stock XLA against the kernels that could replace it.

The way of one region under the policy `measure`:

1. `measurement_requests.py` looks a region up in the store by its digest (`extract/digest.py`) and notes unknown
   ones.
2. `tuner.py` takes the notes, those first on which most time depends, within a budget and under a measurement lock
   (`measurement_lock.py`).
3. `extract/` cuts the region out as a module; the dispatched side comes from `driver/single_call.py`, passed in as a
   value.
4. `run/` compiles and runs both on equal inputs; `compare/` validates the results and times interleaved trials.
5. `attempts.py` counts what failed, `findings.py` writes the outcome to `store.py`; the module is planned again, at
   most three times.
6. Once all regions are known, `whole_program_trial.py` tries the plan strategies that follow from them against stock
   XLA and the finalists among themselves. A program of several calls that is entirely unknown is tried before its
   regions, too.

A process that is killed leaves nothing behind that another one would wait for.
"""
