"""Anchor ops: normalizers from an HLO instruction to operands, dimensions and attributes in its kernel's terms.

One module per op kind; `normalizers.py` maps the op kinds of `pattern/op_kinds.py` to them, `anchor.py` is the
result.
"""
