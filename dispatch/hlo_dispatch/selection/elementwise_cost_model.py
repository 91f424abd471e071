"""Cost model of elementwise regions: nanoseconds that vectors save for each element, by instruction.

They are estimates by a wide margin, from 10,000 and 1,000,000 elements on two cores of an Intel Xeon (AVX-512), jax
0.10.2, one function at a time, and decide only what was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_dispatch.analysis.flat_graph import Node

_SAVED: Mapping[str, Mapping[str, float]] = {
    "f32": {
        "atan2": 20.0, "cbrt": 15.0, "cosine": 7.0, "power": 7.0, "sine": 7.0, "tan": 18.0,
        "erf": -1.0, "tanh": -0.4,
    },
    "f64": {
        "atan2": 20.0, "cbrt": 15.0, "cosine": 15.0, "erf": 18.0, "log": 3.0, "log-plus-one": 6.0, "power": 17.0,
        "sine": 15.0, "tan": 18.0, "tanh": -3.0,
    },
}  # fmt: skip
"""Element type → opcode → nanoseconds that its function saves for each element."""
_OTHER = {"f32": -0.1, "f64": -0.2, "pred": -0.1}
"""What XLA has in registers, and the kernel in blocks."""
LEAST_NANOSECONDS_SAVED = 40_000.0
"""About twice what a call and waking threads cost."""


def nanoseconds_saved(node: Node) -> float:
    """What the kernel saves for each element, in the time of one thread; less than 0 where XLA is faster."""
    kind = node.shape.element_type
    return _SAVED.get(kind, {}).get(node.opcode, _OTHER.get(kind, -0.2))
