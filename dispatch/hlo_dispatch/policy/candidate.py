"""A candidate: a match in one form, and the kernel's word that it can compute it. All forms there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.epilogue.folding import fold
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.routines.routine import RoutineMatch
from hlo_dispatch.match.structural.structural_match import StructuralMatch
from hlo_dispatch.policy.heuristic import worth_folding

AnyMatch = Match | StructuralMatch | RoutineMatch

WHOLE, FOLDED = "whole", "folded"
PACKED, PLAIN = ", weights packed", ", weights plain"
SHORTER, BARE = "one step less", "bare"


@dataclass(frozen=True)
class Candidate:
    """A match (or a shortened form of it) and the kernel's word that it can compute it."""

    match: AnyMatch
    attributes: dict[str, Any]
    implementation: str
    scratch_bytes: int | None
    """Working memory, which is a second result of the call; None: the call has one plain result."""
    backend_config: str = ""
    """The attributes as text, if somebody had to write it already."""
    reorders_weights: bool = False
    """Whether every call copies its weights into another layout."""


class Ask(Protocol):
    """What the kernel says to a match; `attributes` are asked for besides the match's own."""

    def __call__(self, match: AnyMatch, **attributes: str) -> Candidate | Refusal: ...


@dataclass(frozen=True)
class Default:
    """What is dispatched where nothing was measured: the longest form that the kernel takes."""

    candidate: Candidate
    form: str
    cut: Refusal | None = None
    """What the kernel said to the whole epilogue, where it takes only a part of it."""


def best_form(match: Match | StructuralMatch) -> Match | StructuralMatch:
    """The form in which a kernel should compute the match: with its scales in the weights where that is cheaper."""
    if not isinstance(match, Match) or not worth_folding(match):
        return match
    return _folded(match) or match


def _folded(match: Match) -> Match | None:
    if "folded" not in match.notes:
        match.notes["folded"] = fold(match)
    return match.notes["folded"]


def default_of(match: Match | StructuralMatch, ask: Ask) -> Default | Refusal:
    """The longest form of `match` that the kernel takes, scales folded where that is expected to pay."""
    name, longest = match.anchor.node.name, match
    best, form = best_form(match), WHOLE
    candidate = ask(best)
    if best is not match and isinstance(candidate, Refusal):
        candidate = ask(match)
    elif best is not match:
        match = longest = best
        form = FOLDED
    first_refusal = candidate
    while isinstance(candidate, Refusal):
        shorter = match.shortened()
        if shorter is None or candidate.code == "library-missing":
            refusal = first_refusal if isinstance(first_refusal, Refusal) else candidate
            return Refusal(refusal.code, refusal.sentence, refusal.instruction or name)
        match = shorter
        candidate = ask(match)
    cut = first_refusal if match is not longest and isinstance(first_refusal, Refusal) else None
    return Default(candidate, form, cut)


def fastest_of(match: RoutineMatch, kernels: Sequence[str], ask: Ask) -> Default | Refusal:
    """The first of a routine's kernels that takes it; its form is its name."""
    refusal: Refusal | None = None
    for kernel in kernels:
        candidate = ask(match.by(kernel))
        if not isinstance(candidate, Refusal):
            return Default(candidate, kernel)
        refusal = candidate if refusal is None else refusal
    assert refusal is not None, "a routine has at least one kernel"
    return Refusal(refusal.code, refusal.sentence, refusal.instruction or match.node.name)


def forms_of(match: AnyMatch, default: Default, ask: Ask) -> Iterator[tuple[str, Candidate]]:
    """Every form worth measuring, the default first. Names are stable: the store keeps them."""
    yield default.form, default.candidate
    if isinstance(match, RoutineMatch):
        for kernel in match.routine.kernels:
            if kernel != default.form:
                yield from _taken(kernel, ask(match.by(kernel)))
        return
    chosen = default.candidate.match
    if not isinstance(chosen, Match):
        return
    # Folding looks at leading steps only, so the match as it came (or as far as the kernel takes it) shows both.
    if default.form == FOLDED:
        yield from _taken(WHOLE, ask(match))
    elif (folded := _folded(chosen)) is not None:
        yield from _taken(FOLDED, ask(folded))
    yield from _other_weights(default, ask)
    shorter = chosen.shortened()
    if shorter is not None and chosen.taken:
        # What is in the weights cannot be left out.
        yield from _taken(BARE, ask(replace(match if default.form == FOLDED else chosen, taken=0)))
        if shorter.taken > 0:
            yield from _taken(SHORTER, ask(shorter))


def form_named(name: str, match: AnyMatch, default: Default, ask: Ask) -> Candidate | None:
    """The form that the store knows as `name`; None where the kernel does not take it (any more)."""
    return next((candidate for form, candidate in forms_of(match, default, ask) if form == name), None)


def _taken(name: str, answer: Candidate | Refusal) -> Iterator[tuple[str, Candidate]]:
    if not isinstance(answer, Refusal):
        yield name, answer


def _other_weights(default: Default, ask: Ask) -> Iterator[tuple[str, Candidate]]:
    """The default with its weights given the other way: as they are, or reordered inside the call."""
    candidate = default.candidate
    if "weights_type" not in candidate.attributes:
        return
    suffix, weights_format = (PLAIN, "plain") if candidate.reorders_weights else (PACKED, "any")
    answer = ask(candidate.match, weights_format=weights_format)
    if not isinstance(answer, Refusal) and answer.reorders_weights != candidate.reorders_weights:
        yield default.form + suffix, answer
