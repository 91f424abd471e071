"""Benchmarks: whole models against stock XLA and its own oneDNN flags. Run from a checkout; see README.md."""
