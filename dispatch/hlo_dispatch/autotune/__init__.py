"""Measuring: what a region takes, here and now, by stock XLA and by the kernels that could replace it."""
