"""Which kernel, if any, computes a match: one function, read from top to bottom.

forced by the user → measured on this machine → heuristic → stock XLA. The policy sees a match, the machine,
what a kernel answers to the match's attributes and what was measured; never the module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_dispatch.errors import PolicyError, Refusal
from hlo_dispatch.host.machine import Machine
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.routines.routine import RoutineMatch
from hlo_dispatch.match.structural.structural_match import StructuralMatch
from hlo_dispatch.policy.candidate import (
    AnyMatch,
    Ask,
    Candidate,
    Default,
    best_form,
    default_of,
    fastest_of,
    form_named,
)
from hlo_dispatch.policy.heuristic import worth_dispatching
from hlo_dispatch.policy.linear_algebra import in_order_of_speed, worth_calling
from hlo_dispatch.policy.measured import STOCK, Measured

MEASURING = ("measure", "stored")
POLICIES = (*MEASURING, "heuristic", "always", "never")

Recall = Callable[[AnyMatch, Default], Measured | None]
"""What was measured of a match whose default form is known."""


@dataclass(frozen=True)
class Decision:
    """What was chosen and why. Falsy when the region stays with XLA."""

    candidate: Candidate | None
    reason: str
    refusal: Refusal | None = None
    cut: Refusal | None = None
    """What the kernel said to the whole epilogue, where it takes only a part of it."""
    saved: float | None = None
    """Seconds that the call saves, where it was measured."""
    is_needed: bool = False
    """Whether stock is wrong there, so that it must not be left to it, whatever that gains."""

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


def expect(match: Match, machine: Machine, policy: str) -> Match | None:
    """What `decide` will most likely choose, if its first question is answered as usual; None: stock XLA.

    Lets that question be asked ahead of time.
    """
    if policy == "never" or (policy == "heuristic" and not worth_dispatching(match, "", machine)[0]):
        return None
    form = best_form(match)
    return form if isinstance(form, Match) else None


def decide(
    match: AnyMatch,
    machine: Machine,
    policy: str,
    ask: Ask,
    recall: Recall = lambda match, default: None,
) -> Decision:
    """Choose for one match.

    Args:
        match: the anchor with its longest epilogue, or a pattern.
        ask: what the kernel says to a match; asked again with a shorter epilogue while it refuses.
        recall: what is known of the match from measuring; None where it was never measured.
    """
    name = match.anchor.node.name
    if policy == "never":
        return _stock(Refusal("policy", 'the policy "never" leaves everything to XLA', name))
    if isinstance(match, RoutineMatch):
        return _routine(match, machine, policy, ask, recall)
    default = default_of(match, ask)
    if isinstance(default, Refusal):
        return _stock(default)
    rest = f"; the rest of its epilogue stays with XLA: {default.cut}" if default.cut is not None else ""
    if policy == "always":
        reason = f'the policy "always" takes every kernel that can compute the region{rest}'
        return Decision(default.candidate, reason, cut=default.cut)
    measured = recall(match, default) if policy in MEASURING else None
    if measured is not None:
        return by_measurement(measured, match, default, ask)
    found = default.candidate.match
    if isinstance(found, StructuralMatch):
        return _asked_for(default.candidate, found)
    assert not isinstance(found, RoutineMatch), "a routine was decided above"
    worth, reason = worth_dispatching(found, default.candidate.implementation, machine)
    if not worth:
        return _stock(Refusal("policy", reason, name))
    return Decision(default.candidate, reason + rest, cut=default.cut)


def by_measurement(measured: Measured, match: AnyMatch, default: Default, ask: Ask) -> Decision:
    """The form that won when the region was measured, or stock."""
    name = match.anchor.node.name
    if measured.chosen == STOCK:
        code = "wrong-result" if measured.refused else "slower"
        return _stock(Refusal(code, measured.sentence(default.candidate.implementation), name))
    candidate = form_named(measured.chosen, match, default, ask)
    if candidate is None:
        sentence = f"measured: {measured.chosen} is fastest, but the kernel does not take it any more"
        return _stock(Refusal("kernel-unsupported", sentence, name))
    form = "" if measured.chosen == default.form else f"; {measured.chosen}"
    cut = default.cut if candidate.match is default.candidate.match else None
    is_needed = measured.stock_error > 0
    return Decision(candidate, measured.sentence() + form, cut=cut, saved=measured.gain, is_needed=is_needed)


def _routine(match: RoutineMatch, machine: Machine, policy: str, ask: Ask, recall: Recall) -> Decision:
    """The kernel that won, or the first that can compute it: in the table's order, or the fastest here first."""
    is_forced = policy == "always"
    default = fastest_of(match, match.routine.kernels if is_forced else in_order_of_speed(match, machine), ask)
    if isinstance(default, Refusal):
        return _stock(default)
    if is_forced:
        return Decision(default.candidate, 'the policy "always" takes every kernel that can compute the region')
    measured = recall(match, default) if policy in MEASURING else None
    if measured is not None:
        return by_measurement(measured, match, default, ask)
    chosen = default.candidate.match
    assert isinstance(chosen, RoutineMatch)
    worth, reason = worth_calling(chosen, machine)
    return Decision(default.candidate, reason) if worth else _stock(Refusal("policy", reason, match.node.name))


def _asked_for(candidate: Candidate, match: StructuralMatch) -> Decision:
    """A pattern of the user's own table is taken where nothing was measured; a shipped one has to be measured."""
    if match.asked_for:
        return Decision(candidate, match.asked_for)
    sentence = f"the pattern {match.pattern.name} was not measured on this machine"
    return _stock(Refusal("policy", sentence, match.output.name))


def _stock(refusal: Refusal) -> Decision:
    return Decision(None, refusal.sentence, refusal)
