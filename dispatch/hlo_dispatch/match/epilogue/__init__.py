"""Epilogue matching: the chain of elementwise ops behind an anchor op that its kernel computes as post-ops.

`finder.py` follows the chain, `steps.py` is the vocabulary of post-ops, `folding.py` moves per-channel scales into
the weights.
"""
