"""The intermediate representation: HLO modules, shapes, text, the verifier. Knows no patterns, no kernels, no JAX."""
