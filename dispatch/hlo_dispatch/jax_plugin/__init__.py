"""JAX plugin: the plugin entry point, the compiler hook, the compilation-cache key, `explain` and `tune`.

JAX imports `entry_point.py` before a backend exists; `HLO_DISPATCH=1` calls what `install()` calls. `hook.py` puts
one callback into XLA's pre-scheduler stage and gets every module compiled for the CPU, as bytes. First it serves
requests for that module: a placeholder executable's substitution, `module_collection.py`. No exception leaves it
unless `HLO_DISPATCH_STRICT=1`; the answer is then "unchanged", and `record.py` counts. `decision_dependencies.py`
records what the decisions depend on for `cache_key.py`; `replica_consensus.py` has process 0 decide for a program
that spans processes. `stablehlo.py` and `optimizing.py` run XLA's pipeline up to the hook for other front ends,
`serializing.py` makes an executable of a rewritten module. `jit_replacement.py` puts `hlo_dispatch.jit` in `jax.jit`'s
place.
"""
