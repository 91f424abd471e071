"""Observed leaves: which leaves of a call's arguments are the same objects as in the calls before."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any


class ObservedLeaves:
    """Identity of the leaves of successive calls of one structure; holds weak references only.

    A leaf that has changed once is dynamic for good, except where the leaves of a frozen program are replaced together,
    as new weights are after training: each may change once more then.
    """

    def __init__(self, is_freezable: Callable[[Any], bool], *, smallest: int, repeats: int) -> None:
        """
        Args:
            is_freezable: whether a leaf may be frozen.
            smallest: bytes of the static leaves together from which on they are worth freezing.
            repeats: number of successive calls with the leaves of the call before, until they count as static.
        """
        self._is_freezable, self._smallest, self._needed = is_freezable, smallest, repeats
        self._references: dict[int, weakref.ref[Any]] | None = None
        """Number of a leaf that is not known to be dynamic → the leaf."""
        self._replaceable: set[int] = set()
        self._repeats = 0
        self.is_exhausted = False
        """Whether too little is left that could be static; every call asks, so it is what the latest one found."""

    def observe(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """Compare with the call before; returns the numbers of the static leaves, none as long as that is not known."""
        if self._references is None:
            candidates = [(number, leaf) for number, leaf in enumerate(leaves) if self._is_freezable(leaf)]
            self._references = {number: weakref.ref(leaf) for number, leaf in candidates}
        else:
            self._repeats = 0 if self._compare(self._references, leaves) else self._repeats + 1
        self.is_exhausted = self._bytes(self._references) < self._smallest
        is_due = self._repeats >= self._needed and not self.is_exhausted
        return tuple(self._references) if is_due else ()

    def replaced(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        """Observe a call whose leaves are not all those that were frozen; returns what `observe` returns.

        Where at least half of their bytes are others now, they are new weights; otherwise those that changed were no
        weights.
        """
        references = self._references or {}
        changed = {number: r for number, r in references.items() if r() is not leaves[number]}
        changed_bytes = sum(getattr(leaves[number], "nbytes", 0) for number in changed)
        all_bytes = sum(getattr(leaves[number], "nbytes", 0) for number in references)
        self._replaceable = set(references) if 2 * changed_bytes >= all_bytes else set()
        return self.observe(leaves)

    def _compare(self, references: dict[int, weakref.ref[Any]], leaves: Sequence[Any]) -> bool:
        """Forget the leaves that changed; returns whether some were replaced."""
        is_replaced = False
        for number, reference in list(references.items()):
            leaf = leaves[number]
            if reference() is leaf and self._is_freezable(leaf):
                continue
            if number in self._replaceable and self._is_freezable(leaf):
                self._replaceable.discard(number)
                references[number] = weakref.ref(leaf)
                is_replaced = True
            else:
                del references[number]
        return is_replaced

    @staticmethod
    def _bytes(references: dict[int, weakref.ref[Any]]) -> int:
        return sum(leaf.nbytes for leaf in (reference() for reference in references.values()) if leaf is not None)
