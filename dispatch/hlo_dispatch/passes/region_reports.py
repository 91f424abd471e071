"""Region reports: a `Region` for every anchor of every plan, dispatched or refused, with its source location."""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import OpMetadataProto, StackFrameIndexProto
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.structural.nearest_miss import NearestMiss
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.report import Region
from hlo_dispatch.selection.decide import Decision

# Formulas of anchors without a normal form.
FALLBACK_FORMULAS = {
    "convolution": "conv(x, w)",
    "dot": "x @ w",
    "reduce-window": "pool(x)",
    "exponential": "softmax(q·kᵀ)·v",
}


def regions_of(module: Module, plans: list[ComputationPlan], *, details: bool = False) -> tuple[Region, ...]:
    """One Region per anchor and per pattern's match, in program order, then the patterns' nearest misses.

    Args:
        details: report the nearest activation where an epilogue ends at an unknown function.
    """
    frames = _Frames(module.proto.stack_frame_index)
    decided = tuple(
        _region(plan, node, match, decision, frames, details)
        for plan in plans
        for node, (match, decision) in sorted(plan.decisions.items(), key=lambda item: item[0].index)
    )
    return decided + tuple(_missed(computation, miss, frames) for computation, miss in _nearest(plans))


def _nearest(plans: list[ComputationPlan]) -> list[tuple[str, NearestMiss]]:
    """(computation's name, nearest miss) of each pattern without a match in the module."""
    matches = (match for plan in plans for match, _ in plan.decisions.values() if match is not None)
    matched = {match.name for match in matches if isinstance(match.entry, Pattern)}
    nearest: dict[str, tuple[str, NearestMiss]] = {}
    for plan in plans:
        for miss in (miss for miss in plan.misses if miss.is_reported):
            name = miss.pattern.name
            if name not in matched and (name not in nearest or miss.matched > nearest[name][1].matched):
                nearest[name] = plan.graph.computation.name, miss
    return list(nearest.values())


def _missed(computation: str, miss: NearestMiss, frames: _Frames) -> Region:
    node = miss.node
    refusal = Refusal("near-miss", miss.sentence, node.name)
    return Region(
        name=node.name,
        computation=computation,
        opcode=node.opcode,
        formula=miss.pattern.formula,
        kernel=None,
        implementation=None,
        attributes={},
        covered=(),
        op_name=node.proto.metadata.op_name,
        source=frames.source(node.proto.metadata),
        reason=miss.sentence,
        refusal=refusal,
        shape=str(node.shape).partition("{")[0],
        stopped_at=node.name,
        stopped_because=miss.why,
        entry=miss.pattern.name,
    )


def _region(
    plan: ComputationPlan,
    node: Node,
    match: Match | None,
    decision: Decision,
    frames: _Frames,
    details: bool,
) -> Region:
    candidate = decision.candidate
    chosen = candidate.match if candidate is not None else match
    output = chosen.output if chosen is not None else node
    metadata = _metadata(plan, node, chosen)
    stopped_at, stopped_because = (
        chosen.epilogue_end(decision.epilogue_refusal, details=details) if chosen is not None else ("", "")
    )
    return Region(
        name=node.name,
        computation=plan.graph.computation.name,
        opcode=node.opcode,
        formula=chosen.formula if chosen is not None else _fallback_formula(node),
        kernel=candidate.match.kernel if candidate is not None else None,
        implementation=candidate.implementation if candidate is not None else None,
        attributes=dict(candidate.attributes.mapping) if candidate is not None else {},
        covered=tuple(member.name for member in candidate.match.covered) if candidate is not None else (),
        op_name=metadata.op_name,
        source=frames.source(metadata),
        reason=decision.reason,
        refusal=decision.refusal,
        shape=str(output.shape).partition("{")[0],
        stopped_at=stopped_at,
        stopped_because=stopped_because,
        call=plan.calls.get(node, ""),
        saved=decision.saved,
        entry=chosen.name if chosen is not None else "",
    )


def _fallback_formula(node: Node) -> str:
    return FALLBACK_FORMULAS.get(node.opcode) or node.proto.custom_call_target or node.opcode


def _metadata(plan: ComputationPlan, node: Node, match: Match | None) -> OpMetadataProto:
    """The anchor's metadata; XLA drops it from some products, so else that of the nearest instruction."""
    own = node.proto.metadata
    if own.op_name:
        return own
    producers = [plan.graph.instruction_of[producer] for producer in node.producers]
    covered = [member.proto for member in match.covered] if match is not None else []
    for instruction in (*producers, *covered):
        metadata = instruction.metadata
        if metadata.op_name:
            return metadata
    return own


class _Frames:
    """The source locations of a module's stack frames."""

    def __init__(self, index: StackFrameIndexProto) -> None:
        self._index = index
        self._known: dict[int, str] = {}
        """Number of a frame → its location."""

    def source(self, metadata: OpMetadataProto) -> str:
        """`file:line` of the innermost frame, from the metadata itself or the module's stack frame index."""
        if metadata.source_file:
            return f"{metadata.source_file}:{metadata.source_line}"
        number = metadata.stack_frame_id
        if number not in self._known:
            self._known[number] = self._location(number)
        return self._known[number]

    def _location(self, number: int) -> str:
        frames = self._index
        if not 1 <= number <= len(frames.stack_frames):
            return ""
        location = frames.stack_frames[number - 1].file_location_id
        if not 1 <= location <= len(frames.file_locations):
            return ""
        place = frames.file_locations[location - 1]
        if not 1 <= place.file_name_id <= len(frames.file_names):
            return ""
        return f"{frames.file_names[place.file_name_id - 1]}:{place.line}"
