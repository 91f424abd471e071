"""Prologue stages: modules that together compute a prologue's values, one after the other, to bound its peak memory.

Weights that only one stage reads can be freed after it, so that original and preprocessed weights never exist
completely at the same time. Results with a large common weight or intermediate value are in one stage; small ones (a
norm's scale that is multiplied into weights and bias) are recomputed in each. Stages of equal structure, as equal
layers have, share one module, which is compiled once.

Values have digests: two prologues compute the same value of the same parameters where its digests are equal, and a
frozen function's programs hold such a value once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hlo_dispatch.analysis.value_digests import ValueDigests
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.partition.prepacking import prepacked_content

MAX_STAGES = 8
"""Each stage of a structure of its own is compiled separately, so more of them take longer. Where more are different,
there are so many of about the same size."""
MIN_STAGED_BYTES = 64 << 20
"""Bytes of weights and preprocessed values from which a prologue has several stages."""
MIN_STAGE_BYTES = 1 << 20
"""Smaller stages are one."""
MAX_RECOMPUTED_BYTES = 1 << 16
"""Largest intermediate value, in bytes, that is recomputed in several stages."""


@dataclass(frozen=True)
class PrologueStage:
    """One stage of the prologue."""

    module: Module
    """Takes the frozen parameters in `parameters`, returns the values in `results`, several of them as a tuple."""
    digest: bytes
    """Equal for stages of equal structure."""
    parameters: Sequence[int]
    """Parameter numbers in the module before the split."""
    results: Sequence[int]
    """Numbers among the preprocessed values."""
    bytes: int
    """Bytes of its parameters and results."""


class PrologueGraph:
    """The values of a prologue, and what computes them."""

    def __init__(self, split: Split) -> None:
        assert split.prologue is not None
        self._module, self._inputs = split.prologue, split.prologue_inputs
        self._instructions: Mapping[int, InstructionProto] = {i.id: i for i in self._module.entry.instructions[:]}
        """In topological order."""
        self._places = {identifier: place for place, identifier in enumerate(self._instructions)}
        root = self._instructions[self._module.entry.root_id]
        self._results = [root.id] if len(split.preprocessed) == 1 else root.operand_ids[:]
        self._digests = ValueDigests(self._module, prepacked_content)

    def value_digests(self, name_of: Callable[[int], str]) -> list[bytes]:
        """Digest of each preprocessed value, which is equal for equal values of equal parameters.

        Args:
            name_of: parameter number in the module before the split → what identifies its array.
        """
        found = self._digests_of(self._instructions, lambda number: name_of(self._inputs[number]))
        return [found[result] for result in self._results]

    def stages(self, needed: Collection[int]) -> tuple[PrologueStage, ...]:
        """Stages that compute these preprocessed values.

        Raises:
            ModuleError: the verifier rejects a stage; a bug of ours.
        """
        if not needed:
            return ()
        groups = [sorted(needed)]
        if len(needed) > 1 and self._stage_bytes(groups[0]) >= MIN_STAGED_BYTES:
            groups = self._groups(needed)
        modules: dict[bytes, Module] = {}
        return tuple(self._stage(group, modules) for group in groups)

    def _groups(self, needed: Collection[int]) -> list[list[int]]:
        """Numbers of the values of each stage."""
        connected = [(numbers, self._stage_bytes(numbers)) for numbers in self._connected(needed)]
        large = [(numbers, size) for numbers, size in connected if size >= MIN_STAGE_BYTES]
        small = sorted(number for numbers, size in connected if size < MIN_STAGE_BYTES for number in numbers)
        if len({self._digest(numbers) for numbers, _ in large}) > MAX_STAGES:
            return _balanced_groups(connected)
        return [numbers for numbers, _ in large] + ([small] if small else [])

    def _connected(self, needed: Collection[int]) -> list[list[int]]:
        """Numbers of these values, grouped by large common weights and intermediate values."""
        import networkx as nx  # a fifth of a second, which only large weights have to pay

        # Nodes: results by their numbers, then values by their ids.
        graph: nx.Graph[int] = nx.Graph()
        for number in needed:
            graph.add_node(number)
            for value in self._transitive_operands([self._results[number]]):
                if self._bytes(value) > MAX_RECOMPUTED_BYTES:
                    graph.add_edge(number, len(self._results) + value)
        count = len(self._results)
        return sorted(
            sorted(number for number in connected if number < count) for connected in nx.connected_components(graph)
        )

    def _stage(self, results: list[int], modules: dict[bytes, Module]) -> PrologueStage:
        digest = self._digest(results)
        if digest not in modules:
            modules[digest] = self._stage_module(results)
        parameters = [self._inputs[number] for number in self._parameters(results).values()]
        return PrologueStage(modules[digest], digest, parameters, results, self._stage_bytes(results))

    def _stage_module(self, results: Sequence[int]) -> Module:
        module = self._module.copy()
        editor = Editor(module, module.entry)
        values = [self._results[number] for number in results]
        editor.root_id = values[0]
        if len(results) > 1:
            shapes = [self._instructions[value].shape for value in values]
            editor.root_id = editor.last().tuple(values, shapes, "stage_results").id
        editor.keep_reachable_from_root()
        commit(module, [editor])
        renumber_parameters(module, list(self._parameters(results).values()))
        verify(module)
        return module

    def _digest(self, results: Sequence[int]) -> bytes:
        """Digest of the structure of a stage with these results."""
        ids = [self._results[number] for number in results]
        parameters = self._parameters(results)
        places = {number: place for place, number in enumerate(parameters.values())}
        found = self._digests_of(self._transitive_operands(ids), lambda number: str(places[number]))
        # A fusion may take what these results do not depend on.
        return hashlib.sha256(b"".join(found[identifier] for identifier in (*ids, *parameters))).digest()

    def _digests_of(self, values: Iterable[int], name_of: Callable[[int], str]) -> Mapping[int, bytes]:
        """Digests of these values, which include their operands, with parameters identified by `name_of`."""
        return self._digests.of_values(
            [self._instructions[identifier] for identifier in sorted(values, key=self._places.__getitem__)],
            lambda parameter: name_of(parameter.parameter_number).encode(),
        )

    def _parameters(self, results: Sequence[int]) -> dict[int, int]:
        """Id of each parameter that these results depend on → its number, in the order of the numbers."""
        values = (self._instructions[i] for i in self._transitive_operands([self._results[n] for n in results]))
        found = {value.parameter_number: value.id for value in values if value.opcode == "parameter"}
        return {found[number]: number for number in sorted(found)}

    def _stage_bytes(self, results: Sequence[int]) -> int:
        return sum(map(self._bytes, [*(self._results[number] for number in results), *self._parameters(results)]))

    def _bytes(self, value: int) -> int:
        return shape_of(self._instructions[value].shape).bytes

    def _transitive_operands(self, values: Iterable[int]) -> set[int]:
        """Ids of the transitive operands of values, themselves included."""
        found, pending = set(values), list(values)
        while pending:
            instruction = self._instructions[pending.pop()]
            fresh = {*instruction.operand_ids[:], *instruction.control_predecessor_ids[:]} - found
            found |= fresh
            pending += fresh
        return found


def _balanced_groups(connected: Sequence[tuple[list[int], int]]) -> list[list[int]]:
    """Groups of about an equal share of the bytes; a large connected group has more."""
    share = sum(size for _, size in connected) / MAX_STAGES
    groups: list[list[int]] = [[]]
    group_bytes = 0
    for numbers, size in connected:
        if group_bytes >= share:
            groups.append([])
            group_bytes = 0
        groups[-1] += numbers
        group_bytes += size
    return groups
