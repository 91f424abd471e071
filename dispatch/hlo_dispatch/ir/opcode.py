"""Opcode tables: elementwise, rearranging, pure, loop-fusible opcodes, anchors, glue ops."""

from __future__ import annotations

# Elementwise on arrays of one shape: output element i depends on the operands' elements i only.
ELEMENTWISE_UNARY = frozenset(
    "abs cbrt ceil convert cosine erf exponential exponential-minus-one floor is-finite log log-plus-one logistic "
    "negate not round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh".split()
)
ELEMENTWISE_BINARY = frozenset("add and atan2 compare divide maximum minimum multiply or power subtract xor".split())
ELEMENTWISE_TERNARY = frozenset(("clamp", "select"))
ELEMENTWISE = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | ELEMENTWISE_TERNARY

# Likewise, of integers alone.
SHIFTS = frozenset(("shift-left", "shift-right-arithmetic", "shift-right-logical"))

# The same bytes under another shape.
BITCAST = "bitcast"

# Opcodes whose value depends on opcode, shape and operands alone.
PLAIN = ELEMENTWISE - {"compare"} | SHIFTS | {BITCAST, "reshape", "copy"}

CONTROL_FLOW = frozenset(("while", "conditional", "call"))

# Opcodes of most instructions, which call no computation.
CALLS_NOTHING = PLAIN | frozenset(
    "broadcast compare concatenate constant convolution dot dynamic-slice dynamic-update-slice gather "
    "get-tuple-element iota pad parameter reduce-precision reverse slice transpose tuple".split()
)

# Deterministic opcodes whose value also depends on other fields of the proto.
PURE_WITH_FIELDS = frozenset(
    "broadcast compare concatenate constant convolution dot gather get-tuple-element iota pad reduce "
    "reduce-precision reduce-window reverse slice transpose dynamic-slice".split()
)

# Whose results are in their operands' buffers.
FORWARDS = frozenset(("bitcast", "tuple"))

# What a kLoop fusion of XLA:CPU can hold besides elementwise instructions.
LOOP_FUSIBLE = (
    ELEMENTWISE
    | SHIFTS
    | frozenset(
        "bitcast broadcast concatenate constant copy dynamic-slice dynamic-update-slice gather iota pad reduce "
        "reduce-window reshape reverse slice transpose".split()
    )
)
ANCHORS = frozenset(("convolution", "dot"))
