"""The model zoo: how many anchors real models have, how many are dispatched, and what stands in the way of the rest.

`python -m bench.zoo --help`. Nothing big is materialised for counting: parameters are shapes, and XLA is
stopped at the hook, before it generates any code.
"""
