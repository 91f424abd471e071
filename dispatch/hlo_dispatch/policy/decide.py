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
from hlo_dispatch.match.routine import RoutineMatch
from hlo_dispatch.match.structural_match import StructuralMatch
from hlo_dispatch.policy.heuristic import worth_dispatching, worth_folding
from hlo_dispatch.policy.linear_algebra import in_order_of_speed, worth_calling
from hlo_dispatch.policy.machine import Machine

POLICIES = ("heuristic", "always", "never")


@dataclass(frozen=True)
class Candidate:
    """A match (or a shortened form of it) and the kernel's word that it can compute it."""

    match: Match | StructuralMatch | RoutineMatch
    attributes: dict
    implementation: str
    scratch_bytes: int | None
    """Working memory, which is a second result of the call; None: the call has one plain result."""


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


def decide(
    match: Match | StructuralMatch | RoutineMatch,
    machine: Machine,
    policy: str,
    ask: Callable[[Match | StructuralMatch | RoutineMatch], Candidate | Refusal],
) -> Decision:
    """Choose for one match.

    Args:
        match: the anchor with its longest epilogue, or a pattern.
        ask: what the kernel says to a match; asked again with a shorter epilogue while it refuses.
    """
    name, longest = match.anchor.node.name, match
    if policy == "never":
        return _stock(Refusal("policy", 'the policy "never" leaves everything to XLA', name))
    if isinstance(match, RoutineMatch):
        return _routine(match, machine, policy, ask)
    candidate = ask(match)
    if isinstance(match, Match) and worth_folding(match) and (folded := fold(match)) is not None:
        in_weights = ask(folded)
        if not isinstance(in_weights, Refusal):
            match = longest = folded
            candidate = in_weights
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


def _routine(
    match: RoutineMatch, machine: Machine, policy: str, ask: Callable[[RoutineMatch], Candidate | Refusal]
) -> Decision:
    """The first of a routine's kernels that can compute it: in the table's order, or the fastest here first."""
    is_forced = policy == "always"
    refusal: Refusal | None = None
    for kernel in match.routine.kernels if is_forced else in_order_of_speed(match, machine):
        candidate = ask(match.by(kernel))
        if isinstance(candidate, Refusal):
            refusal = candidate if refusal is None else refusal
            continue
        if is_forced:
            return Decision(candidate, 'the policy "always" takes every kernel that can compute the region')
        worth, reason = worth_calling(candidate.match, machine)
        return Decision(candidate, reason) if worth else _stock(Refusal("policy", reason, match.node.name))
    assert refusal is not None, "a routine has at least one kernel"
    return _stock(Refusal(refusal.code, refusal.sentence, refusal.instruction or match.node.name))


def _asked_for(candidate: Candidate, match: StructuralMatch) -> Decision:
    """A pattern of the user's own table is always taken; a shipped one has to be measured first."""
    if match.asked_for:
        return Decision(candidate, match.asked_for)
    sentence = f"the pattern {match.pattern.name} was not measured on this machine"
    return _stock(Refusal("policy", sentence, match.output.name))


def _stock(refusal: Refusal) -> Decision:
    return Decision(None, refusal.sentence, refusal)
