"""Benchmarks: one list of cases, single patterns and whole models against their peers, and the report.

`cases.py` is the list; `operations.py`, `epilogues.py` and `pattern.py` say what a case computes and costs,
`in_jax.py` and `in_torch.py` compute it. `micro.py` times cases in workers, one process for each way of running
them; `models/` does the same for whole models; `result_files.py` keeps every sample; `report/` draws them. The other
modules are programs of their own, which README.md lists: `python -m bench.never_slower`, for example.
"""
