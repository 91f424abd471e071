"""Findings: stores the measurements of one compile; a provisional one replaces no lasting one and is counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hlo_dispatch.autotune.store import Store
from hlo_dispatch.selection.context import Context
from hlo_dispatch.selection.measurements import MAX_DISTURBED_ATTEMPTS, Measurement


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
            if before is not None and not (before.failed_attempts or before.provisional):
                measured = before
            elif before is not None:
                measured = replace(measured, disturbed_attempts=before.disturbed_attempts)
            measured = self.with_disturbance_counted(digest, measured)
        if self.timed or measured.refused:
            self.store.put(self.context, digest, measured)
        return measured

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
        if known is None or known.failed_attempts or known.provisional:
            return None
        if not known.thorough:
            if is_open and known.disturbed_attempts < MAX_DISTURBED_ATTEMPTS:
                known = self.with_disturbance_counted(program, known)
            else:
                known = replace(known, thorough=True)
            self.store.put(self.context, program, known)
        return known
