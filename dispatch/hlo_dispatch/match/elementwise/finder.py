"""Elementwise finder: matches regions around functions that XLA:CPU computes number by number, and whole loops of many
elements around those that it has vectors for.

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
QUICK_FUNCTIONS = {
    "f32": frozenset("exponential exponential-minus-one log log-plus-one".split()),
    "f64": frozenset("exponential exponential-minus-one".split()),
}
"""Element type → opcodes for which XLA:CPU has vectors, too: which are faster on this processor is measured. Not tanh:
a quotient of polynomials is faster than the kernel's."""
FEWEST_OF_QUICK = 1 << 18
"""Elements on which they take long enough to be measured."""
MOST_STEPS_OF_QUICK = 12
"""Instructions around each of them, which XLA keeps in registers and the kernel in blocks."""
OPCODES = SLOW_OPCODES | QUICK_FUNCTIONS["f32"] | QUICK_FUNCTIONS["f64"]


class ElementwiseFinder:
    """Finder of one table's elementwise regions in flat graphs; thread-safe."""

    def __init__(self, table: Table) -> None:
        self._entries = table.elementwise

    @property
    def opcodes(self) -> frozenset[str]:
        """The opcodes without which there is no match."""
        return OPCODES if self._entries else frozenset()

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
            is_slow = is_slow_function(node)
            if node in seen or not (is_slow or _is_quick_function(node)) or is_owned(node) or node in graph.static:
                continue
            grown = grow_region(node, lambda other: other in seen or is_owned(other), is_materialized)
            # The function alone, where the kernel cannot read what the region reads.
            for region in dict.fromkeys((grown, (node,))):
                try:
                    program = write_program(region)
                except NotExpressible:
                    continue
                if not is_slow and not any(map(is_slow_function, region)) and not _is_whole_loop(region, program):
                    continue
                seen.update(region)
                yield _match(self._entries[0], region, program)
                break


def is_slow_function(node: Node) -> bool:
    """Whether the instruction is a function that XLA:CPU is slow at, of many elements."""
    if node.opcode not in SLOW_OPCODES or node.opcode not in SLOW_FUNCTIONS.get(node.shape.element_type, ()):
        return False
    return node.shape.elements >= FEWEST_ELEMENTS and not node.shape.is_dynamic and not node.has_control_predecessors


def _is_quick_function(node: Node) -> bool:
    """Whether the instruction is a function that XLA:CPU has vectors for, of so many elements that it is measured."""
    if node.opcode not in QUICK_FUNCTIONS.get(node.shape.element_type, ()):
        return False
    return node.shape.elements >= FEWEST_OF_QUICK and not node.shape.is_dynamic and not node.has_control_predecessors


def _is_whole_loop(region: Sequence[Node], program: ElementwiseProgram) -> bool:
    """Whether XLA reads and writes the same arrays in a loop of its own: a part of one would be read and written more
    often, which a measurement of the region alone does not show.
    """
    functions = sum(map(_is_quick_function, region))
    values = (region[-1], *(view.node for view in program.operands))
    return len(region) <= MOST_STEPS_OF_QUICK * functions and all(value.top_level_id is not None for value in values)


def _match(entry: Elementwise, region: Sequence[Node], program: ElementwiseProgram) -> Match:
    result = region[-1]
    slow = [node.opcode for node in region if is_slow_function(node)]
    functions = dict.fromkeys(slow or (node.opcode for node in region if _is_quick_function(node)))

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
