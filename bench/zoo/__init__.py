"""Model zoo: anchor ops of real models, how many are dispatched, and the refusals of the rest.

`python -m bench.zoo --help`. Nothing big is materialised for counting: parameters are shapes, and XLA is
stopped at the hook, before it generates any code.
"""
