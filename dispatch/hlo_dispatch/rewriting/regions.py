"""The report's regions: every anchor of every plan, dispatched or left, with where it came from."""

from __future__ import annotations

from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.match.match import Match
from hlo_dispatch.policy.decide import Decision
from hlo_dispatch.report import Region
from hlo_dispatch.rewriting.plan import ComputationPlan


def regions_of(module: Module, plans: list[ComputationPlan]) -> tuple[Region, ...]:
    """One Region per anchor, in program order."""
    frames = module.proto.stack_frame_index
    return tuple(
        _region(plan.graph.computation.name, node, match, decision, frames)
        for plan in plans
        for node, (match, decision) in sorted(plan.decisions.items(), key=lambda item: item[0].index)
    )


def _region(computation: str, node: Node, match: Match | None, decision: Decision, frames) -> Region:
    candidate = decision.candidate
    chosen = candidate.match if candidate is not None else match
    output = chosen.output if chosen is not None else node
    plain = "conv(x, w)" if node.opcode == "convolution" else "x @ w"
    metadata = node.proto.metadata
    return Region(
        name=node.name,
        computation=computation,
        opcode=node.opcode,
        formula=chosen.formula if chosen is not None else plain,
        kernel=chosen.anchor.kernel if candidate is not None else None,
        implementation=candidate.implementation if candidate is not None else None,
        attributes=candidate.attributes if candidate is not None else {},
        covered=tuple(member.name for member in chosen.covered) if candidate is not None else (),
        op_name=metadata.op_name,
        source=_source(metadata, frames),
        reason=decision.reason,
        refusal=decision.refusal,
        shape=str(output.shape).partition("{")[0],
    )


def _source(metadata, frames) -> str:
    """`file:line` of the innermost frame, from the metadata itself or the module's stack frame index."""
    if metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}"
    number = metadata.stack_frame_id
    if not 1 <= number <= len(frames.stack_frames):
        return ""
    location = frames.stack_frames[number - 1].file_location_id
    if not 1 <= location <= len(frames.file_locations):
        return ""
    place = frames.file_locations[location - 1]
    if not 1 <= place.file_name_id <= len(frames.file_names):
        return ""
    return f"{frames.file_names[place.file_name_id - 1]}:{place.line}"
