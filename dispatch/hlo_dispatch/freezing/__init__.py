"""Frozen functions: weight preprocessing once, as a prologue and a steady-state program that run as jitted functions.

`callable.py` is `freeze`. `model_adapter.py` makes a function or a framework's model a pure function of weights and
arguments: `models.py` chooses, `keras_models.py` and `hf_flax_models.py` also have `generate`. `tracing.py` has XLA
optimize the function with its weights as leading parameters and captures the module in the hook; `purity_check.py`
refuses functions that change state, `donation.py` maps donated arguments, `gated_units.py` splits gated units,
`reduced_precision.py` and `weight_only_quantization.py` narrow weights on request, `dynamic_quantization.py` rounds
activations. `driver/frozen_build.py` runs the pipeline on the module and partitions it (`passes/partition/`);
`placeholder_executable.py` compiles each part: JAX compiles a placeholder of the same signature and the hook
substitutes the module. `program.py` is the program of one signature; `preprocessing.py` computes the arrays of all
programs of a function, each once, in `array_memory.py`'s memory. `serialization.py` writes programs to a file,
`loading.py` maps it, `archive.py` is its format; `call_signature.py` and `machine_compatibility.py` say what must
match.
"""
