"""Candidates: the variants of a match that its kernels support, and the choice of the default variant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.match.match import FULL_MATCH, Match
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.family_cost_models import cost_model_of


@dataclass
class Candidate:
    """A variant of a match, and the kernel's answer to the support query for it."""

    match: Match
    attributes: Attributes
    implementation: str
    scratch_bytes: int | None
    """Scratch bytes, a second result of the call; None: the call has a single result."""
    reorders_weights: bool = False
    """Whether every call reorders its weights."""


class KernelSupportQuery(Protocol):
    """The kernel support query: a candidate, or the refusal. `attributes` are requested besides the match's own."""

    def __call__(self, match: Match, **attributes: str) -> Candidate | Refusal: ...


@dataclass
class DefaultVariant:
    """The variant that is dispatched without a measurement: the longest epilogue that the kernel supports."""

    candidate: Candidate
    variant: str
    epilogue_refusal: Refusal | None = None
    """The kernel's refusal of the full epilogue, where it supports a part of it only."""


def default_variant(
    match: Match, support_query: KernelSupportQuery, machine: Machine | None = None
) -> DefaultVariant | Refusal:
    """The first preferred variant that its kernel supports; else the match with its epilogue shortened until it is.

    Args:
        machine: orders the variants; None: the table's order.
    """
    full_match_refusal: Refusal | None = None
    for name, variant_match, _ in cost_model_of(match).preferred_variants(match, machine):
        candidate = support_query(variant_match)
        if not isinstance(candidate, Refusal):
            return DefaultVariant(candidate, name)
        # The refusal of a variant with new instructions does not apply to the match.
        if full_match_refusal is None and variant_match.in_module is variant_match:
            full_match_refusal = candidate
    assert full_match_refusal is not None, "the full match is a variant"
    refusal, shorter = full_match_refusal, match.shortened()
    while shorter is not None and refusal.code != "library-missing":
        candidate = support_query(shorter)
        if not isinstance(candidate, Refusal):
            return DefaultVariant(candidate, FULL_MATCH, epilogue_refusal=full_match_refusal)
        refusal, shorter = candidate, shorter.shortened()
    return Refusal(
        full_match_refusal.code, full_match_refusal.sentence, full_match_refusal.instruction or match.node.name
    )


def variants_of(default: DefaultVariant, support_query: KernelSupportQuery) -> Iterator[tuple[str, Candidate]]:
    """Every supported variant worth measuring, the default first. Names are stable: the store keeps them."""
    default_candidate = default.candidate
    yield default.variant, default_candidate
    for name, match, attributes in default_candidate.match.variants(
        default.variant, reorders_weights=default_candidate.reorders_weights
    ):
        is_alternative = match.kernel != default_candidate.match.kernel
        candidate = support_query(match, **attributes)
        shorter = match.shortened() if is_alternative else None
        while isinstance(candidate, Refusal) and shorter is not None and candidate.code != "library-missing":
            candidate, shorter = support_query(shorter, **attributes), shorter.shortened()
        if isinstance(candidate, Refusal):
            continue
        # Where the kernel keeps the layout of the weights the two variants are equal.
        if not attributes or is_alternative or candidate.reorders_weights != default_candidate.reorders_weights:
            yield name, candidate


def variants_to_measure(
    default: DefaultVariant, support_query: KernelSupportQuery, max_variants: int
) -> list[tuple[str, Candidate]]:
    """The first `max_variants` variants, and at least one for every kernel, since no cost model compares libraries."""
    tried: list[tuple[str, Candidate]] = []
    seen: set[str] = set()
    for name, candidate in variants_of(default, support_query):
        if len(tried) < max_variants or candidate.match.kernel not in seen:
            tried.append((name, candidate))
            seen.add(candidate.match.kernel)
        if len(tried) >= max_variants and seen.issuperset(candidate.match.kernels):
            break
    return tried


def variant_named(name: str, default: DefaultVariant, support_query: KernelSupportQuery) -> Candidate | None:
    """The variant that the store knows as `name`; None: the kernel does not support it (any more)."""
    return next((candidate for variant, candidate in variants_of(default, support_query) if variant == name), None)
