"""Passes: plan every kernel call, check, then edit, then verify. `hlo_dispatch/pipeline.py` has their order."""
