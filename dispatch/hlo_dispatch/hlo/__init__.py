"""The HLO room: modules, shapes, the flat view, text. Knows nothing of patterns, kernels or JAX."""
