"""Which kernel, if any, computes a match: one function, read from top to bottom.

forced by the user → heuristic → stock XLA. (Measured choice will stand between the first two.) The policy
sees a match, the machine and what a kernel answers to the match's attributes; never the module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_dispatch.errors import PolicyError, Refusal
from hlo_dispatch.match.folding import fold
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.structural_match import StructuralMatch
from hlo_dispatch.policy.heuristic import worth_dispatching, worth_folding
from hlo_dispatch.policy.machine import Machine

POLICIES = ("heuristic", "always", "never")


@dataclass(frozen=True)
class Candidate:
    """A match (or a shortened form of it) and the kernel's word that it can compute it."""

    match: Match | StructuralMatch
    attributes: dict
    implementation: str
    scratch_bytes: int | None
    """Working memory, which is a second result of the call; None: the call has one plain result."""
    backend_config: str = ""
    """The attributes as text, if somebody had to write it already."""


@dataclass(frozen=True)
class Decision:
    """What was chosen and why. Falsy when the region stays with XLA."""

    candidate: Candidate | None
    reason: str
    refusal: Refusal | None = None
    cut: Refusal | None = None
    """What the kernel said to the whole epilogue, where it takes only a part of it."""

    def __bool__(self) -> bool:
        return self.candidate is not None


def check_policy(policy: str) -> str:
    """`policy` itself.

    Raises:
        PolicyError: it is not a policy; the message lists those that are.
    """
    if policy not in POLICIES:
        raise PolicyError(f"unknown policy {policy!r}; valid policies are: {', '.join(POLICIES)}")
    return policy


def best_form(match: Match | StructuralMatch) -> Match | StructuralMatch:
    """The form in which a kernel should compute the match: with its scales in the weights where that is cheaper."""
    if not isinstance(match, Match) or not worth_folding(match):
        return match
    if "folded" not in match.notes:
        match.notes["folded"] = fold(match)
    return match.notes["folded"] or match


def expect(match: Match, machine: Machine, policy: str) -> Match | None:
    """What `decide` will most likely choose, if its first question is answered as usual; None: stock XLA.

    Lets that question be asked ahead of time.
    """
    if policy == "never" or (policy == "heuristic" and not worth_dispatching(match, "", machine)[0]):
        return None
    form = best_form(match)
    return form if isinstance(form, Match) else None


def decide(
    match: Match | StructuralMatch,
    machine: Machine,
    policy: str,
    ask: Callable[[Match | StructuralMatch], Candidate | Refusal],
) -> Decision:
    """Choose for one match.

    Args:
        match: the anchor with its longest epilogue, or a pattern.
        ask: what the kernel says to a match; asked again with a shorter epilogue while it refuses.
    """
    name, longest = match.anchor.node.name, match
    if policy == "never":
        return _stock(Refusal("policy", 'the policy "never" leaves everything to XLA', name))
    best = best_form(match)
    candidate = ask(best)
    if best is not match and isinstance(candidate, Refusal):
        candidate = ask(match)
    elif best is not match:
        match = longest = best
    first_refusal = candidate
    while isinstance(candidate, Refusal):
        shorter = match.shortened()
        if shorter is None or candidate.code == "library-missing":
            refusal = first_refusal
            return _stock(Refusal(refusal.code, refusal.sentence, refusal.instruction or name))
        match = shorter
        candidate = ask(match)
    cut = first_refusal if match is not longest and isinstance(first_refusal, Refusal) else None
    rest = f"; the rest of its epilogue stays with XLA: {cut}" if cut is not None else ""
    if policy == "always":
        reason = f'the policy "always" takes every kernel that can compute the region{rest}'
        return Decision(candidate, reason, cut=cut)
    if isinstance(candidate.match, StructuralMatch):
        return _asked_for(candidate, candidate.match)
    worth, reason = worth_dispatching(candidate.match, candidate.implementation, machine)
    if not worth:
        return _stock(Refusal("policy", reason, name))
    return Decision(candidate, reason + rest, cut=cut)


def _asked_for(candidate: Candidate, match: StructuralMatch) -> Decision:
    """A pattern of the user's own table is always taken; a shipped one has to be measured first."""
    if match.asked_for:
        return Decision(candidate, match.asked_for)
    sentence = f"the pattern {match.pattern.name} was not measured on this machine"
    return _stock(Refusal("policy", sentence, match.output.name))


def _stock(refusal: Refusal) -> Decision:
    return Decision(None, refusal.sentence, refusal)
