"""Kernel support query: asks a match's kernel for its implementation and scratch memory, or for a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.match.match import Match
from hlo_dispatch.pattern import Table
from hlo_dispatch.selection.candidate import Candidate
from hlo_dispatch.vendor import kernels, registry

# Models repeat their layers: attributes are made and printed once for equal calls.
_known: dict[tuple[str, tuple[object, ...]], Attributes] = {}
_MOST_KNOWN = 20_000


@dataclass(frozen=True)
class VendorSupportQuery:
    """The support query for the kernels of one table."""

    table: Table

    def __call__(self, match: Match, **attributes: str) -> Candidate | Refusal:
        """Query the match's kernel with the match's attributes and additional ones."""
        binding = self.table.kernels[match.kernel]
        if binding.path is not None:
            # A user's kernel supports what its table says: there is no library to query.
            declared, implementation = Attributes(match.attributes()), f"{binding.path.name}:{binding.symbol}"
            return Candidate(match, declared, implementation, match.scratch_bytes)
        library = kernels.library(match.kernel)
        if isinstance(library, Unavailable):
            return Refusal("library-missing", library.sentence)
        query = _query_attributes(match, library.version, attributes)
        planned = kernels.plan(match.kernel, query, query.text)
        if isinstance(planned, Refusal):
            return planned
        scratch, reorders_weights = None, False
        if match.has_planned_scratch:
            scratch, reorders_weights = planned.scratch_bytes, planned.reorders_weights
            query = query.with_scratch(scratch)
        return Candidate(match, query, planned.implementation, scratch, reorders_weights)


def prefetch(match: Match) -> bool:
    """Start the query in the background; False where the library is missing."""
    library = kernels.library(match.kernel)
    if isinstance(library, Unavailable):
        return False
    query = _query_attributes(match, library.version, {})
    kernels.prefetch(match.kernel, query, query.text)
    return True


def _query_attributes(match: Match, version: str, additional: Mapping[str, str]) -> Attributes:
    """The attributes of the match's call before its scratch size is known."""
    if additional:
        return Attributes(_values(match, version) | dict(additional))
    if version not in match.queries:
        signature = match.signature
        known = None if signature is None else _known.get((version, signature))
        match.queries[version] = attributes = known or Attributes(_values(match, version))
        if known is None and signature is not None:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[version, signature] = attributes
    return match.queries[version]


def _values(match: Match, version: str) -> dict[str, Any]:
    scratch = {"scratch": 0} if match.has_planned_scratch else {}
    return {"abi": registry.abi(), "library": version} | scratch | match.attributes()
