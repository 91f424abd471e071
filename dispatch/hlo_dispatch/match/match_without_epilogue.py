"""What matches have in common that are taken as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.protocol import LibraryCall, Variant


@dataclass(frozen=True, eq=False)
class MatchWithoutEpilogue:
    """Part of a match (protocol.py) without an epilogue: there is nothing to leave out of it, or to fold into it."""

    notes: dict[str, Any] = field(init=False, default_factory=dict[str, Any], repr=False)
    """What later rooms worked out about the match and will ask again."""

    @property
    def in_module(self) -> Self:
        return self

    @property
    def library_call(self) -> LibraryCall | None:
        """It is none."""
        return None

    @property
    def post_ops(self) -> tuple[()]:
        return ()

    def shortened(self) -> None:
        """There is no shorter form."""

    def variants(self, chosen: str, *, reorders_weights: bool) -> Iterator[Variant]:
        """There are none."""
        return iter(())

    def epilogue_end(self, epilogue_refusal: Refusal | None, *, details: bool) -> tuple[str, str]:
        """There is no epilogue."""
        return "", ""
