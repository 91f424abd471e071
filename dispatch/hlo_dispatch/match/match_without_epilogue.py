"""Base class of matches without epilogue, which a kernel computes completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.protocol import LibraryCall, Variant


@dataclass(frozen=True, eq=False)
class MatchWithoutEpilogue:
    """The part of a match (protocol.py) without an epilogue: it cannot be shortened, nor folded."""

    derived_results: dict[str, Any] = field(init=False, default_factory=dict[str, Any], repr=False)
    """Cache of results that later packages derive from the match."""

    @property
    def in_module(self) -> Self:
        return self

    @property
    def library_call(self) -> LibraryCall | None:
        """None: the match is not a library call."""
        return None

    @property
    def post_ops(self) -> tuple[()]:
        return ()

    def shortened(self) -> None:
        """None: there is no epilogue to shorten."""

    def variants(self, chosen: str, *, reorders_weights: bool) -> Iterator[Variant]:
        """No other variants."""
        return iter(())

    def epilogue_end(self, epilogue_refusal: Refusal | None, *, details: bool) -> tuple[str, str]:
        """Empty: there is no epilogue."""
        return "", ""
