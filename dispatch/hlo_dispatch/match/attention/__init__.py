"""Attention matching: two products with a softmax between them, whatever the order of their dimensions.

`finder.py` walks from the second product up through `softmax.py` and `scores.py` to the first one; `steps.py` and
`masks.py` describe what happens to the scores, `axes.py`, `axis_views.py` and `operands.py` give each
operand's strides.
"""
