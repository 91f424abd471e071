"""Glue ops: means, gates and small products between two kernel calls, which a kernel call alone would not pay for.

A call group ends where XLA computes something between two of its members. A kernel that computes the op there connects
the members and costs its arithmetic only. The scaling of an argument ahead of the first call counts as a glue op, too:
XLA runs a program of one call on the caller's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_BROADCASTS, PEEL_ROUNDING_AND_BITCASTS
from hlo_dispatch.analysis.strided_view import is_bitcast_copy
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.scaling import is_leading_scaling
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.passes.half_precision_results import readers_of_unrounded, with_rounded_result
from hlo_dispatch.passes.ownership import InstructionOwnership
from hlo_dispatch.selection.candidate import Candidate, DefaultVariant, KernelSupportQuery, default_variant
from hlo_dispatch.vendor import registry

REASON = "it is a glue op between calls that form one call group"
# Ops between a result and a call's operand that change the shape or the type only.
_PEELED = PEEL_ROUNDING_AND_BITCASTS | PEEL_BROADCASTS


@dataclass(frozen=True)
class GlueOp:
    """A match that connects two calls of a call group."""

    match: Match
    default: DefaultVariant


@dataclass(frozen=True)
class GlueOps:
    """Glue ops to dispatch, and dispatched calls to replace by ones with a rounded result."""

    glue_ops: Mapping[Node, GlueOp]
    """Instruction → its glue op."""
    rounded: Mapping[Match, Candidate]
    """Match with an unrounded result → the candidate with a rounded result that replaces it."""


def find_glue_ops(
    dispatched: Sequence[Match],
    refused: AbstractSet[Node],
    unrounded: Sequence[Match],
    matcher: Matcher,
    ownership: InstructionOwnership,
    support_query: KernelSupportQuery,
    results: AbstractSet[Node],
) -> GlueOps:
    """Find the glue ops that connect the dispatched calls to call groups.

    Args:
        dispatched: the dispatched matches.
        refused: anchors that stay with XLA only because a separate call would cost too much.
        unrounded: matches that kernels support only with a rounded result.
        ownership: of the dispatched matches; it does not change.
        results: results of attentions, which nothing peels.
    """
    members = [match for match in dispatched if _can_be_member(match)]
    if len(members) < 2:
        return GlueOps({}, {})
    candidates = matcher.glue_ops()
    roundable = [
        match
        for match in unrounded
        if ownership.conflict(match) is None and ownership.unmaterialized_operand(match) is None
    ]
    glue_candidates = set(candidates)
    found = {
        match: with_rounded_result(match, glue_candidates, ownership.materialized) for match in (*members, *roundable)
    }
    support_answers = {match: support_query(longer) for match, longer in found.items() if longer is not None}
    changed = {match: answer for match, answer in support_answers.items() if isinstance(answer, Candidate)}
    while True:
        extended = ownership.copy()
        for match, candidate in changed.items():
            extended.extend(match, candidate.match)
        # Matches with a rounded result come last.
        call_results = [changed[match].match if match in changed else match for match in members]
        call_results += [changed[match].match for match in roundable if match in changed]
        glue_ops = _supported_glue_ops(
            call_results,
            sorted({*candidates, *refused}, key=lambda node: node.index),
            matcher,
            extended,
            support_query,
            results,
        )
        undone = {
            match
            for match, candidate in changed.items()
            if not glue_ops.keys() >= set(readers_of_unrounded(candidate.match))
        }
        if not undone:
            return GlueOps(glue_ops, changed)
        # A user reads the unrounded value: repeat without these.
        for match in undone:
            del changed[match]


def _supported_glue_ops(
    members: Sequence[Match],
    candidates: Sequence[Node],
    matcher: Matcher,
    ownership: InstructionOwnership,
    support_query: KernelSupportQuery,
    results: AbstractSet[Node],
) -> dict[Node, GlueOp]:
    """The supported glue ops among `candidates`, which is in program order; changes `ownership`."""
    call_results = {match.output for match in members}
    read = {node for match in members for node in match.reads}
    # A leading scaling applies to an image. Weights that each call scales stay with XLA.
    sources = {match.anchor.source.node for match in members if match.fused is not None}
    matches = {
        node: match
        for node, match in _match_on_results(call_results, candidates, matcher, ownership, results).items()
        if not is_leading_scaling(node)
        or any(_peel_to_result(source, {match.output}) is match.output for source in sources)
    }
    answers: dict[Node, DefaultVariant | Refusal] = {}
    found: Mapping[Node, Match] = matches
    while True:
        live = _read_by_members(found, read)
        for node in live:
            if node not in answers:
                answers[node] = default_variant(matches[node], support_query)
        supported = {node: answer for node in live if isinstance(answer := answers[node], DefaultVariant)}
        found = _reading_a_result({node: default.candidate.match for node, default in supported.items()}, call_results)
        if len(found) == len(live):
            return {node: GlueOp(matches[node], supported[node]) for node in found}


def _can_be_member(match: Match) -> bool:
    kernel = registry.kernels().get(match.kernel)
    return kernel is not None and bool(kernel.grouped_by)


def _peel_to_result(node: Node, results: AbstractSet[Node]) -> Node:
    """Peel converts, broadcasts and bitcasts from a value, down to a result or another op."""
    while node not in results and (node.opcode in _PEELED or is_bitcast_copy(node)):
        node = node.operands[0]
    return node


def _result_and_unrounded(result: Node) -> tuple[Node, ...]:
    """A result, and its value before rounding."""
    return (result, *result.operands) if result.opcode == "convert" else (result,)


def _match_on_results(
    call_results: AbstractSet[Node],
    candidates: Sequence[Node],
    matcher: Matcher,
    ownership: InstructionOwnership,
    results_of_others: AbstractSet[Node],
) -> dict[Node, Match]:
    """Matches that read the calls' results, transitively."""
    found: dict[Node, Match] = {}
    results = set(call_results)
    readable = {node for result in results for node in _result_and_unrounded(result)}
    for node in candidates:
        reads_result = any(_peel_to_result(operand, results) in readable for operand in node.operands)
        if node in ownership.owned or not (reads_result or is_leading_scaling(node)):
            continue
        match = matcher.rematch(
            node, ownership.owned.__contains__, ownership.materialized.__contains__, results | results_of_others
        )
        if (
            isinstance(match, Refusal)
            or not _can_be_member(match)
            or ownership.unmaterialized_operand(match) is not None
        ):
            continue
        found[node] = match
        ownership.acquire(match)
        results.add(match.output)
        readable.update(_result_and_unrounded(match.output))
    return _reading_a_result(found, call_results)


def _reading_a_result(found: Mapping[Node, Match], call_results: AbstractSet[Node]) -> dict[Node, Match]:
    """The matches that read a call's result, transitively, and leading scalings."""
    results = set(call_results)
    live: dict[Node, Match] = {}
    for node, match in found.items():
        if is_leading_scaling(node) or any(_peel_to_result(operand, results) in results for operand in match.reads):
            live[node] = match
            results.add(match.output)
    return live


def _read_by_members(found: Mapping[Node, Match], read: Iterable[Node]) -> dict[Node, Match]:
    """The matches whose result a call reads, transitively."""
    results = {match.output for match in found.values()}
    read_values = {_peel_to_result(node, results) for node in read}
    live: dict[Node, Match] = {}
    for node, match in reversed(list(found.items())):
        if match.output in read_values:
            live[node] = match
            read_values.update(_peel_to_result(operand, results) for operand in match.reads)
    return dict(reversed(list(live.items())))
