"""Drivers of the pipeline: with measurements and a program tuner, for a single call, and with a timer.

`measured_pipeline.py` opens the store once in a process and adds a tuner with a budget for the policy `measure`;
`single_call.py` dispatches one region in a given variant for measurements; `frozen_build.py` dispatches a module with
frozen parameters and splits it; `profile.py` times each entry of the table.
"""
