"""Prologue stages: splits a prologue into modules that run one after the other, to bound its peak memory.

Weights that only one stage reads can be freed after it, so that original and preprocessed weights never exist
completely at the same time. Results with a large common intermediate value are in one stage; small intermediate values
(a norm's scale that is multiplied into weights and bias) are recomputed in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.ir.verify import verify

MAX_STAGES = 8
"""Each stage is compiled separately, so more stages take longer; about 1/8 of the bytes exists twice."""
MIN_STAGED_BYTES = 64 << 20
"""Bytes of preprocessed values from which a prologue has several stages."""
MAX_RECOMPUTED_BYTES = 1 << 16
"""Largest intermediate value, in bytes, that is recomputed in several stages."""


@dataclass(frozen=True)
class PrologueStage:
    """One stage of the prologue."""

    module: Module
    """Takes the frozen parameters in `parameters`, returns the values in `results`, several of them as a tuple."""
    parameters: Sequence[int]
    """Parameter numbers in the module before the split."""
    results: Sequence[int]
    """Numbers among the preprocessed values."""


def split_into_stages(split: Split, *, is_single: bool) -> tuple[PrologueStage, ...]:
    """The prologue in one stage or several; none where it is empty.

    Args:
        is_single: whether to make one stage of any size.

    Raises:
        ModuleError: the verifier rejects a stage; a bug of ours.
    """
    if split.prologue is None:
        return ()
    sizes = [value.shape.bytes for value in split.preprocessed]
    groups = [list(range(len(sizes)))]
    if not is_single and len(sizes) > 1 and sum(sizes) >= MIN_STAGED_BYTES:
        groups = _balanced_groups(_connected_results(split.prologue), sizes)
        if len(groups) > 1:
            return tuple(_stage(split.prologue, split.prologue_inputs, group) for group in groups)
    return (PrologueStage(split.prologue, split.prologue_inputs, groups[0]),)


def _connected_results(module: Module) -> list[list[int]]:
    """Numbers of the results, grouped by large common intermediate values."""
    import networkx as nx  # a fifth of a second, which only large weights have to pay

    instructions = {instruction.id: instruction for instruction in module.entry.instructions}
    results = instructions[module.entry.root_id].operand_ids[:]
    # Nodes: results by their numbers, then values by their ids.
    graph: nx.Graph[int] = nx.Graph()
    for number, result in enumerate(results):
        graph.add_node(number)
        for name in _transitive_operands(instructions, result):
            if (
                instructions[name].opcode != "parameter"
                and shape_of(instructions[name].shape).bytes > MAX_RECOMPUTED_BYTES
            ):
                graph.add_edge(number, len(results) + name)
    return sorted(
        sorted(number for number in connected if number < len(results)) for connected in nx.connected_components(graph)
    )


def _transitive_operands(instructions: Mapping[int, InstructionProto], name: int) -> set[int]:
    """Ids of the transitive operands of a value, itself included."""
    found, pending = {name}, [name]
    while pending:
        instruction = instructions[pending.pop()]
        fresh = {*instruction.operand_ids[:], *instruction.control_predecessor_ids[:]} - found
        found |= fresh
        pending += fresh
    return found


def _balanced_groups(connected: Sequence[list[int]], sizes: Sequence[int]) -> list[list[int]]:
    """Groups of about an equal share of the bytes; a large connected group has more."""
    share = sum(sizes) / MAX_STAGES
    groups: list[list[int]] = [[]]
    group_bytes = 0
    for numbers in connected:
        if group_bytes >= share:
            groups.append([])
            group_bytes = 0
        groups[-1] += numbers
        group_bytes += sum(sizes[number] for number in numbers)
    return groups


def _stage(prologue: Module, prologue_inputs: Sequence[int], results: list[int]) -> PrologueStage:
    module = prologue.copy()
    editor = Editor(module, module.entry)
    root = editor.root
    values = [root.operand_ids[number] for number in results]
    editor.root_id = values[0]
    if len(results) > 1:
        shapes = [root.shape.tuple_shapes[number] for number in results]
        editor.root_id = editor.last().tuple(values, shapes, "stage_results").id
    editor.keep_reachable_from_root()
    inputs = sorted(instruction.parameter_number for instruction in editor.parameters())
    commit(module, [editor])
    renumber_parameters(module, inputs)
    verify(module)
    return PrologueStage(module, [prologue_inputs[number] for number in inputs], results)
