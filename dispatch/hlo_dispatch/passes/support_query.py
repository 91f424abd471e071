"""What a match's kernel says to it: which implementation it would run, and how much memory that needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.passes.backend_config import to_text
from hlo_dispatch.pattern import Table
from hlo_dispatch.selection.candidate import Candidate
from hlo_dispatch.vendor import kernels, registry


@dataclass(frozen=True)
class AskKernels:
    """Asks the kernels that one table names."""

    table: Table

    def __call__(self, match: CallableMatch, **attributes: str) -> Candidate | Refusal:
        """What the match's kernel says to the match as it stands; `attributes` are asked for besides."""
        binding = self.table.kernels[match.kernel]
        if binding.path is not None:
            # A user's kernel takes what its table says it takes: there is nobody to ask.
            return Candidate(match, match.attributes(), f"{binding.path.name}:{binding.symbol}", match.scratch_bytes)
        library = kernels.library(match.kernel)
        if isinstance(library, Unavailable):
            return Refusal("library-missing", library.sentence)
        question, text = _question(match, library.version, attributes)
        planned = kernels.plan(match.kernel, question, text)
        if isinstance(planned, Refusal):
            return planned
        if not match.has_planned_scratch:
            return Candidate(match, question, planned.implementation, None, text)
        scratch = planned.scratch_bytes
        config = text.replace("scratch = 0 : i64", f"scratch = {scratch} : i64", 1)
        return Candidate(
            match, question | {"scratch": scratch}, planned.implementation, scratch, config, planned.reorders_weights
        )


def prefetch(match: CallableMatch) -> bool:
    """Have the question worked on while the caller goes on; False where the library is missing."""
    library = kernels.library(match.kernel)
    if isinstance(library, Unavailable):
        return False
    kernels.prefetch(match.kernel, *_question(match, library.version, {}))
    return True


def _question(match: CallableMatch, version: str, more: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The attributes of the match's call before it is known how much scratch memory it needs, also as text."""
    # Prefetched first, then asked for.
    if version not in match.notes or more:
        scratch = {"scratch": 0} if match.has_planned_scratch else {}
        attributes = {"abi": registry.abi(), "library": version} | scratch | match.attributes() | dict(more)
        if more:
            return attributes, to_text(attributes)
        match.notes[version] = attributes, to_text(attributes)
    return match.notes[version]
