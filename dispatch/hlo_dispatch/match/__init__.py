"""Matcher: from the flat graph and the pattern table to matches and refusals. Selects nothing, edits nothing.

`matcher.py` starts at anchor ops: `anchors/` normalizes the instruction into a kernel's terms for the first table
entry that takes its types, and `epilogue/` follows the elementwise chain behind it as far as that entry allows.
`attention/` finds two products with a softmax between them, `recurrent/` loops over the steps of recurrent layers,
`elementwise/` regions around slow functions,
`structural/` matches patterns that are written as expressions, `routines/` matches library calls of JAX (LAPACK, FFT)
and products of factors. `match.py` is what all of them find, and all that later packages know of it; `fused_anchor.py`
is an anchor op's part of it, `described_view.py` an operand in a call's attributes. Equal anchor ops, patterns and
attentions are matched once: `match_memo.py` makes a match of other nodes where `dependency_trace.py` shows that
all that was read is the same there, by a function of nodes that `equal_values.py` compiles.
"""
