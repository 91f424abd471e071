"""Kernel support query: asks a match's kernel for its implementation and scratch memory, or for a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.match.equal_matches import once_for_equal_matches
from hlo_dispatch.match.match import Match
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
            declared, implementation = Attributes(match.attributes()), f"{binding.path.name}:{binding.symbol}"
            return Candidate(match, declared, implementation, match.scratch_bytes)
        library = kernels.library(match.kernel)
        if isinstance(library, Unavailable):
            return Refusal("library-missing", library.sentence)
        if attributes:
            answer = _ask(match, Attributes(_values(match, library.version) | attributes))
        else:
            answer = _answer(match, library.version)
        return answer if isinstance(answer, Refusal) else Candidate(match, *answer)


def prefetch(match: Match) -> bool:
    """Start the query in the background; False where the library is missing."""
    library = kernels.library(match.kernel)
    if isinstance(library, Unavailable):
        return False
    _prefetch(match, library.version)
    return True


class _Answer(NamedTuple):
    """A kernel's answer to the query, as a candidate has it."""

    attributes: Attributes
    implementation: str
    scratch_bytes: int | None
    reorders_weights: bool


@once_for_equal_matches
def _query_attributes(match: Match, version: str) -> Attributes:
    """The attributes of the match's call before its scratch size is known."""
    return Attributes(_values(match, version))


@once_for_equal_matches
def _prefetch(match: Match, version: str) -> None:
    query = _query_attributes(match, version)
    kernels.prefetch(match.kernel, query, query.text)


@once_for_equal_matches
def _answer(match: Match, version: str) -> _Answer | Refusal:
    return _ask(match, _query_attributes(match, version))


def _ask(match: Match, query: Attributes) -> _Answer | Refusal:
    planned = kernels.plan(match.kernel, query, query.text)
    if isinstance(planned, Refusal):
        return planned
    if not match.has_planned_scratch:
        return _Answer(query, planned.implementation, None, False)
    scratch = planned.scratch_bytes
    return _Answer(query.with_scratch(scratch), planned.implementation, scratch, planned.reorders_weights)


def _values(match: Match, version: str) -> dict[str, Any]:
    scratch = {"scratch": 0} if match.has_planned_scratch else {}
    return {"abi": registry.abi(), "library": version} | scratch | match.attributes()
