"""What lies between calls that can be one sequence and is not worth a call of its own: means, gates, small products.

A sequence ends where XLA computes something between two of its calls. What a kernel can compute there joins them, and
costs no more than its arithmetic. What scales an argument ahead of the first call counts as such, too: a program that
is nothing but one call is run by the thread that calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import renames_layout
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.scaling import is_leading_scaling
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.passes.half_precision_results import readers_of_unrounded, rounded
from hlo_dispatch.passes.ownership import Claims
from hlo_dispatch.selection.candidate import Ask, Candidate, Default, default_of
from hlo_dispatch.vendor import registry

REASON = "it lies between calls that are one sequence"
# What a call reads may be another's result under another shape or type.
_SAME_VALUE = frozenset(("bitcast", "broadcast", "convert"))


@dataclass(frozen=True)
class Link:
    """A match that joins calls."""

    match: CallableMatch
    default: Default


@dataclass(frozen=True)
class Joints:
    """What is to be dispatched besides what is, and what is to give its result otherwise."""

    links: Mapping[Node, Link]
    """By the instruction that stands for each."""
    rounded: Mapping[CallableMatch, Candidate]
    """What is dispatched, or could not be as it is → what takes its place."""


def joints(
    dispatched: Sequence[CallableMatch],
    refused: AbstractSet[Node],
    unrounded: Sequence[CallableMatch],
    matcher: Matcher,
    claims: Claims,
    ask: Ask,
) -> Joints:
    """What makes calls one sequence, by what lies between them.

    Args:
        dispatched: what is already.
        refused: anchors that stay with XLA only because a call by itself would cost too much.
        unrounded: what kernels may compute if they round the result.
        claims: of what is dispatched; they stay as they are.
    """
    joining = [match for match in dispatched if _joins(match)]
    if len(joining) < 2:
        return Joints({}, {})
    possible = matcher.links()
    free = [match for match in unrounded if claims.obstruct(match) is None and claims.hide(match) is None]
    found = {match: rounded(match, set(possible), claims.needed) for match in (*joining, *free)}
    asked = {match: ask(longer) for match, longer in found.items() if longer is not None}
    changed = {match: answer for match, answer in asked.items() if isinstance(answer, Candidate)}
    while True:
        claimed = claims.copy()
        for match, candidate in changed.items():
            claimed.exchange(match, candidate.match)
            match.output.is_result = False
        # What is given rounded or not at all comes last.
        given = [changed[match].match if match in changed else match for match in joining]
        given += [changed[match].match for match in free if match in changed]
        links = _links(given, sorted({*possible, *refused}, key=lambda node: node.index), matcher, claimed, ask)
        left = {
            match
            for match, candidate in changed.items()
            if isinstance(longer := candidate.match, Match)
            if not links.keys() >= set(readers_of_unrounded(longer))
        }
        if not left:
            return Joints(links, changed)
        # Somebody reads the value as it is: once more without these.
        for match in left:
            changed.pop(match).match.output.is_result = False


def _links(
    joining: Sequence[CallableMatch], possible: Sequence[Node], matcher: Matcher, claims: Claims, ask: Ask
) -> dict[Node, Link]:
    """What is to be dispatched of `possible`, which is in order; changes `claims`."""
    given = {match.output for match in joining}
    read = {node for match in joining for node in match.reads}
    # Ahead of the first call an image is scaled. Weights that are scaled in each call stay with XLA.
    sources = {match.anchor.source.node for match in joining if isinstance(match, Match)}
    whole = {
        node: match
        for node, match in _reached(given, possible, matcher, claims).items()
        if not is_leading_scaling(node) or any(_origin(source, {match.output}) is match.output for source in sources)
    }
    answers: dict[Node, Default | Refusal] = {}
    found: Mapping[Node, CallableMatch] = whole
    while True:
        kept = _leading_back(found, read)
        for node in kept:
            if node not in answers:
                answers[node] = default_of(whole[node], ask)
        taken = {node: answer for node in kept if isinstance(answer := answers[node], Default)}
        found = _following({node: default.candidate.match for node, default in taken.items()}, given)
        if len(found) == len(kept):
            return {node: Link(whole[node], taken[node]) for node in found}


def _joins(match: CallableMatch) -> bool:
    kernel = registry.kernels().get(match.kernel)
    return kernel is not None and bool(kernel.joined_by)


def _origin(node: Node, results: AbstractSet[Node]) -> Node:
    """The result that a value is, under whatever shape and type; else what it is made of, as far as it is the same."""
    while node not in results and (node.opcode in _SAME_VALUE or renames_layout(node)):
        node = node.operands[0]
    return node


def _with_unrounded(result: Node) -> tuple[Node, ...]:
    """A result, and what it was before it was rounded."""
    return (result, *result.operands) if result.opcode == "convert" else (result,)


def _reached(
    given: AbstractSet[Node], possible: Sequence[Node], matcher: Matcher, claims: Claims
) -> dict[Node, CallableMatch]:
    """What could be computed of the calls' results, of what is computed of those, and so on."""
    found: dict[Node, CallableMatch] = {}
    results = set(given)
    for node in results:
        node.is_result = True
    readable = {node for result in results for node in _with_unrounded(result)}
    for node in possible:
        reads_result = any(_origin(operand, results) in readable for operand in node.operands)
        if node in claims.taken or not (reads_result or is_leading_scaling(node)):
            continue
        match = matcher.match_again(node, claims.taken.__contains__, claims.needed.__contains__)
        if isinstance(match, Refusal) or not _joins(match) or claims.hide(match) is not None:
            continue
        found[node] = match
        claims.claim(match)
        results.add(match.output)
        readable.update(_with_unrounded(match.output))
        match.output.is_result = True
    # What is not kept in the end is no result.
    for match in found.values():
        match.output.is_result = False
    return _following(found, given)


def _following(found: Mapping[Node, CallableMatch], given: AbstractSet[Node]) -> dict[Node, CallableMatch]:
    """Those that read a call's result, or that of another one which does; and what comes ahead of the first call."""
    results = set(given)
    kept: dict[Node, CallableMatch] = {}
    for node, match in found.items():
        if is_leading_scaling(node) or any(_origin(operand, results) in results for operand in match.reads):
            kept[node] = match
            results.add(match.output)
    return kept


def _leading_back(found: Mapping[Node, CallableMatch], read: Iterable[Node]) -> dict[Node, CallableMatch]:
    """Those whose result a call reads, or another one whose result is read."""
    results = {match.output for match in found.values()}
    wanted = {_origin(node, results) for node in read}
    kept: dict[Node, CallableMatch] = {}
    for node, match in reversed(list(found.items())):
        if match.output in wanted:
            kept[node] = match
            wanted.update(_origin(operand, results) for operand in match.reads)
    return dict(reversed(list(kept.items())))
