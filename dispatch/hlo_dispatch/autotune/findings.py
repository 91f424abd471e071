"""Findings: stores the outcomes of one compile's measurements; what decides nothing replaces no lasting measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeGuard

from hlo_dispatch.autotune.store import Store
from hlo_dispatch.selection.context import Context
from hlo_dispatch.selection.measurements import (
    MAX_DISTURBED_ATTEMPTS,
    MAX_FAILED_ATTEMPTS,
    STOCK,
    Measurement,
    Pairs,
)


class Names(NamedTuple):
    """The words for a measured region or program in messages and in the store."""

    formula: str
    shape: str
    """Of the result."""
    kernel: str


@dataclass
class Findings:
    """The measurements of one compile, and the store that keeps them."""

    store: Store
    context: Context
    timed: bool
    """Whether times are measured: without them only wrong results are stored."""
    _disturbed: set[str] = field(default_factory=set[str])
    """Digests that this compile measured on a busy machine."""

    def stored(self, digest: str, measured: Measurement) -> Measurement:
        """Store a measurement; returns the stored one, which for a provisional one may be a lasting one from before."""
        if measured.provisional and self.timed:
            before = self.store.get(self.context, digest)
            if _is_lasting(before):
                measured = before
            elif before is not None:
                samples = {**before.samples, **measured.samples}
                measured = replace(measured, disturbed_attempts=before.disturbed_attempts, samples=samples)
            measured = self.with_disturbance_counted(digest, measured)
        if self.timed or measured.refused:
            self.store.put(self.context, digest, measured)
        return measured

    def failed(
        self,
        digest: str,
        names: Names,
        *,
        is_thorough: bool,
        timed_out_after: float = 0.0,
        samples: Mapping[str, Pairs] | None = None,
    ) -> Measurement | None:
        """Count a failed attempt in the store: after a few of them other processes give up, which keeps compiles quick.

        Args:
            is_thorough: whether it had unlimited time: then the failure is final.
            timed_out_after: seconds after which it was given up; no other process tries it then.
            samples: what another process goes on with, besides the stored ones.

        Returns:
            what is stored; None where an earlier measurement stands.
        """
        before = self.store.get(self.context, digest) if self.timed else None
        if not self.timed or _is_lasting(before):
            return None
        samples = {**(before.samples if before is not None else {}), **(samples or {})}
        if before is not None and before.provisional and not is_thorough and timed_out_after == 0:
            # A failure decides less than that, and does not replace it, but its compile counts.
            noted = self.with_disturbance_counted(digest, replace(before, samples=samples))
            self.store.put(self.context, digest, noted)
            return noted
        failed_attempts = 1 + (before.failed_attempts if before is not None else 0)
        noted = Measurement(
            STOCK,
            {},
            thorough=is_thorough,
            **names._asdict(),
            failed_attempts=MAX_FAILED_ATTEMPTS if is_thorough or timed_out_after > 0 else failed_attempts,
            timed_out_after=timed_out_after,
            disturbed_attempts=before.disturbed_attempts if before is not None else 0,
            samples=samples,
        )
        self.store.put(self.context, digest, noted)
        return noted

    def with_disturbance_counted(self, digest: str, known: Measurement) -> Measurement:
        """The measurement with one more disturbed compile counted, once in this compile."""
        is_first = digest not in self._disturbed
        self._disturbed.add(digest)
        return replace(known, disturbed_attempts=known.disturbed_attempts + is_first)

    def finished(self, program: str, *, is_open: bool) -> Measurement | None:
        """Make a program's measurement final at the end of its second compile; None where there is none to keep.

        Args:
            is_open: whether a region was measured on a busy machine: a few more compiles measure that again.
        """
        # Another process may have measured more meanwhile.
        known = self.store.get(self.context, program) if self.timed else None
        if not _is_lasting(known):
            return None
        if not known.thorough:
            if is_open and known.disturbed_attempts < MAX_DISTURBED_ATTEMPTS:
                known = self.with_disturbance_counted(program, known)
            else:
                known = replace(known, thorough=True)
            self.store.put(self.context, program, known)
        return known


def _is_lasting(known: Measurement | None) -> TypeGuard[Measurement]:
    """Whether the store has a measurement that decides."""
    return known is not None and not known.failed_attempts and not known.provisional
