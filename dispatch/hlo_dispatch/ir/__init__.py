"""Intermediate representation: HLO modules, shapes, text, verifier. Knows no patterns, no kernels, no JAX.

`module.py` parses an `HloModuleProto` by the fields that `schema.py` declares; unknown fields survive the round trip,
and what no pass touches keeps its bytes. `shape.py` has shapes with layouts, `opcode.py` tables of opcodes,
`literals.py` constants, `entry_parameters.py` renumbers the entry's parameters with their aliases and buffer donors,
`inline.py` inlines calls of unoptimized modules, `verify.py` and `verify_donation.py` check a changed module.
`text.py` alone uses jaxlib's parser and printer; `language.py` tells HLO from the programs of other front ends.
"""
