"""Kernel selection for one match: forced by the user → measured on this machine → cost model → stock XLA.

Selection sees a match, the machine, answers to kernel support queries and measurements; never the module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hlo_dispatch.errors import NoTruthValue, PolicyError, Refusal
from hlo_dispatch.match.match import Match
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.candidate import (
    Candidate,
    DefaultVariant,
    KernelSupportQuery,
    default_variant,
    variant_named,
)
from hlo_dispatch.selection.family_cost_models import cost_model_of
from hlo_dispatch.selection.measurements import DECIDED_BY_PROGRAM, STOCK, Measurement

MEASURING = ("measure", "stored")
POLICIES = (*MEASURING, "heuristic", "always", "never")
POLICY_VARIABLE = "HLO_DISPATCH_POLICY"
"""The policy for wherever an argument names none."""

MeasurementLookup = Callable[[Match, DefaultVariant], Measurement | None]
"""Looks up the measurement of a match by its default variant."""


@dataclass
class Decision(NoTruthValue):
    """The chosen candidate and the reason; no candidate: the region stays with XLA."""

    candidate: Candidate | None
    reason: str
    refusal: Refusal | None = None
    epilogue_refusal: Refusal | None = None
    """The kernel's refusal of the full epilogue, where it supports a part of it only."""
    saved: float | None = None
    """Measured seconds that the call saves."""
    is_required: bool = False
    """Whether stock's result is wrong, so that the kernel is required whatever its time."""


def check_policy(policy: str) -> str:
    """`policy` itself, if it is one.

    Raises:
        PolicyError: it is not a policy; the message lists those that are.
    """
    if policy not in POLICIES:
        raise PolicyError(f"unknown policy {policy!r}; valid policies are: {', '.join(POLICIES)}")
    return policy


def policy_or_default(policy: str | None, default: str) -> str:
    """The policy in effect: the argument, else HLO_DISPATCH_POLICY, else `default`.

    Raises:
        PolicyError: it is not a policy; the message says whether the variable names it, and lists those that are.
    """
    if policy is not None:
        return check_policy(policy)
    named = os.environ.get(POLICY_VARIABLE, "")
    if named and named not in POLICIES:
        raise PolicyError(f"{POLICY_VARIABLE} is {named!r}; unset it, or say one of {', '.join(POLICIES)}")
    return named or default


def preferred_variant(match: Match, machine: Machine) -> Match:
    """The variant for which `decide` makes its first support query, which allows prefetching it."""
    return next(cost_model_of(match).preferred_variants(match, machine)).match


def is_likely_dispatched(match: Match, machine: Machine, policy: str) -> bool:
    """Whether `decide` most likely chooses a kernel, if there is no measurement that says otherwise."""
    return policy == "always" or cost_model_of(match).is_worth_calling(match, "", machine)[0]


def decide(
    match: Match,
    machine: Machine,
    policy: str,
    support_query: KernelSupportQuery,
    lookup: MeasurementLookup = lambda match, default: None,
) -> Decision:
    """Chooses a candidate, or stock XLA, for one match.

    Args:
        match: with its longest epilogue, where it has one.
        support_query: the kernel support query; repeated with a shorter epilogue while the kernel refuses.
        lookup: looks up the match's measurement; None: there is none.
    """
    name = match.node.name
    if policy == "never":
        return _stock(Refusal("policy", 'the policy "never" leaves everything to XLA', name))
    is_forced = policy == "always"
    default = default_variant(match, support_query, None if is_forced else machine)
    if isinstance(default, Refusal):
        return _stock(default)
    refused = default.epilogue_refusal
    rest = f"; the rest of its epilogue stays with XLA: {refused}" if refused is not None else ""
    if is_forced:
        reason = f'the policy "always" takes every kernel that can compute the region{rest}'
        return Decision(default.candidate, reason, epilogue_refusal=refused)
    measured = lookup(match, default) if policy in MEASURING else None
    if measured is DECIDED_BY_PROGRAM:
        reason = f"measured: the whole program is fastest with every region in a kernel{rest}"
        return Decision(default.candidate, reason, epilogue_refusal=refused)
    if measured is not None and not measured.is_undecided:
        return by_measurement(measured, match, default, support_query)
    chosen = default.candidate
    is_worth_it, reason = cost_model_of(match).is_worth_calling(chosen.match, chosen.implementation, machine)
    if measured is not None:
        reason = f"{reason}; {measured.sentence(chosen.implementation)}"
    if not is_worth_it:
        return _stock(Refusal("policy", reason, name))
    return Decision(chosen, reason + rest, epilogue_refusal=refused)


def by_measurement(
    measured: Measurement, match: Match, default: DefaultVariant, support_query: KernelSupportQuery
) -> Decision:
    """The variant that won the measurement, or stock."""
    name = match.node.name
    if measured.chosen == STOCK:
        code = "wrong-result" if measured.refused else "slower"
        return _stock(Refusal(code, measured.sentence(default.candidate.implementation), name))
    candidate = variant_named(measured.chosen, default, support_query)
    if candidate is None:
        sentence = f"measured: {measured.chosen} is fastest, but the kernel does not take it any more"
        return _stock(Refusal("kernel-unsupported", sentence, name))
    variant = "" if measured.chosen == default.variant else f"; {measured.chosen}"
    epilogue_refusal = default.epilogue_refusal if candidate.match is default.candidate.match else None
    is_required = measured.stock_error > 0
    return Decision(
        candidate,
        measured.sentence() + variant,
        epilogue_refusal=epilogue_refusal,
        saved=measured.gain,
        is_required=is_required,
    )


def _stock(refusal: Refusal) -> Decision:
    return Decision(None, refusal.sentence, refusal)
