"""Intermediate representation: HLO modules, their editing, shapes, text, verifier. Knows no patterns, no JAX.

`module.py` parses an `HloModuleProto` by the fields that `schema.py` declares; unknown fields survive the round trip,
and what no pass touches keeps its bytes. `shape.py` has shapes with layouts, `opcode.py` tables of opcodes,
`literals.py` constants.

A pass changes a computation through `editor.py`: a draft with an index of users, committed in topological order
(`instruction_order.py`); `builder.py` makes instructions. `kernel_call.py` is a custom-call as a value, `attributes.py`
its attributes and their text. `entry_parameters.py` renumbers the entry's parameters with their aliases and donors.

`inline.py` inlines calls of unoptimized modules, `verify.py` and `verify_donation.py` check a changed module.
`text.py` alone uses jaxlib's parser and printer; `language.py` tells HLO from the programs of other front ends.
"""
