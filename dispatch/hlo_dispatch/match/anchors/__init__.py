"""Anchor ops: normalizers from an HLO instruction to operands, dimensions and attributes in its kernel's terms.

`normalizers.py` maps the op kinds of `pattern/op_kinds.py` to one module per opcode, `anchor.py` is the result. A
convolution is in one of `convolution_forms.py`, each of which gives a specification (`convolution_spec.py`). What a
product with integer weights reads is in `quantized_operand.py` and `rounded_source.py`.
"""
