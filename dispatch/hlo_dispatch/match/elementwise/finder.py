"""Elementwise finder: matches regions around functions that XLA:CPU computes number by number.

Only regions of many elements are matches: a call costs microseconds, and smaller ones are left to XLA without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.match.elementwise.program import ElementwiseProgram, NotExpressible, described_operands, write_program
from hlo_dispatch.match.elementwise.region import grow_region
from hlo_dispatch.match.match import Match
from hlo_dispatch.pattern import Table
from hlo_dispatch.pattern.table import Elementwise, Numerics

SLOW_FUNCTIONS = {
    "f32": frozenset("atan2 cbrt cosine power sine tan".split()),
    "f64": frozenset("atan2 cbrt cosine erf log log-plus-one power sine tan".split()),
}
"""Element type → opcodes for which XLA:CPU calls a function of one number, or has a slower loop."""
FEWEST_ELEMENTS = 4096
SLOW_OPCODES = SLOW_FUNCTIONS["f32"] | SLOW_FUNCTIONS["f64"]


class ElementwiseFinder:
    """Finder of one table's elementwise regions in flat graphs; thread-safe."""

    def __init__(self, table: Table) -> None:
        self._entries = table.elementwise

    @property
    def opcodes(self) -> frozenset[str]:
        """The opcodes without which there is no match."""
        return SLOW_OPCODES if self._entries else frozenset()

    def find(
        self, graph: FlatGraph, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]
    ) -> Iterator[Match]:
        """Every region of `graph`, last first; what the caller owns by then is in none.

        Args:
            is_owned: whether another match owns an instruction.
            is_materialized: whether a value must be in memory.
        """
        seen: set[Node] = set()
        for node in reversed(graph.nodes) if self._entries else ():
            if node in seen or not is_slow_function(node) or is_owned(node) or node in graph.static:
                continue
            grown = grow_region(node, lambda other: other in seen or is_owned(other), is_materialized)
            # The function alone, where the kernel cannot read what the region reads.
            for region in dict.fromkeys((grown, (node,))):
                try:
                    program = write_program(region)
                except NotExpressible:
                    continue
                seen.update(region)
                yield _match(self._entries[0], region, program)
                break


def is_slow_function(node: Node) -> bool:
    """Whether the instruction is a function that XLA:CPU is slow at, of many elements."""
    if node.opcode not in SLOW_OPCODES or node.opcode not in SLOW_FUNCTIONS.get(node.shape.element_type, ()):
        return False
    return node.shape.elements >= FEWEST_ELEMENTS and not node.shape.is_dynamic and not node.has_control_predecessors


def _match(entry: Elementwise, region: Sequence[Node], program: ElementwiseProgram) -> Match:
    result = region[-1]
    functions = dict.fromkeys(node.opcode for node in region if is_slow_function(node))

    def numerics() -> Numerics:
        return entry.numerics[result.shape.element_type]

    return Match(
        entry=entry,
        node=result,
        kernels=(entry.kernel,),
        kernel=entry.kernel,
        operands=program.by_role,
        results=(result,),
        result_shapes=(result.shape,),
        covered=tuple(region),
        formula=f"elementwise({', '.join(functions)})",
        attributes=lambda: described_operands(program, result),
        numerics=numerics,
    )
