"""Kernel support query: asks a match's kernel for its implementation and scratch memory, or for a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.backend_config import to_text
from hlo_dispatch.pattern import Table
from hlo_dispatch.selection.candidate import Candidate
from hlo_dispatch.vendor import kernels, registry


@dataclass(frozen=True)
class VendorSupportQuery:
    """The support query for the kernels of one table."""

    table: Table

    def __call__(self, match: Match, **attributes: str) -> Candidate | Refusal:
        """Query the match's kernel with the match's attributes and additional ones."""
        binding = self.table.kernels[match.kernel]
        if binding.path is not None:
            # A user's kernel supports what its table says: there is no library to query.
            return Candidate(match, match.attributes(), f"{binding.path.name}:{binding.symbol}", match.scratch_bytes)
        library = kernels.library(match.kernel)
        if isinstance(library, Unavailable):
            return Refusal("library-missing", library.sentence)
        query, text = _query_attributes(match, library.version, attributes)
        planned = kernels.plan(match.kernel, query, text)
        if isinstance(planned, Refusal):
            return planned
        if not match.has_planned_scratch:
            return Candidate(match, query, planned.implementation, None, text)
        scratch = planned.scratch_bytes
        config = text.replace("scratch = 0 : i64", f"scratch = {scratch} : i64", 1)
        return Candidate(
            match, query | {"scratch": scratch}, planned.implementation, scratch, config, planned.reorders_weights
        )


def prefetch(match: Match) -> bool:
    """Start the query in the background; False where the library is missing."""
    library = kernels.library(match.kernel)
    if isinstance(library, Unavailable):
        return False
    kernels.prefetch(match.kernel, *_query_attributes(match, library.version, {}))
    return True


def _query_attributes(match: Match, version: str, additional: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The attributes of the match's call before its scratch size is known, as a mapping and as text."""
    # Computed at the prefetch, read again at the query.
    if version not in match.derived_results or additional:
        scratch = {"scratch": 0} if match.has_planned_scratch else {}
        attributes = {"abi": registry.abi(), "library": version} | scratch | match.attributes() | dict(additional)
        if additional:
            return attributes, to_text(attributes)
        match.derived_results[version] = attributes, to_text(attributes)
    return match.derived_results[version]
