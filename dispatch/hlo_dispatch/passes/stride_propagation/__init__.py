"""Stride propagation: moves strides backwards through kernel calls, so that positions nobody reads are not computed.

`propagate.py` is the pass; `window_attributes.py` computes a window call's attributes for the strided result.
"""
