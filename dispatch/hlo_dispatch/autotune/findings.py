"""Findings of one compile on their way into the store: a busy machine replaces no lasting answer, and is counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hlo_dispatch.autotune.store import Store
from hlo_dispatch.selection.context import Context
from hlo_dispatch.selection.measurements import MAX_DISTURBED_ATTEMPTS, Measurement


@dataclass
class Findings:
    """What one compile measures, kept in a store."""

    store: Store
    context: Context
    timed: bool
    """Whether times are measured: without them only wrong results are kept."""
    _disturbed: set[str] = field(default_factory=set[str])
    """What was measured on a busy machine in this compile."""

    def stored(self, digest: str, measured: Measurement) -> Measurement:
        """What is in the store now: the measurement, or a lasting one from before where this one is provisional."""
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
        """The same, disturbed in one more compile."""
        is_first = digest not in self._disturbed
        self._disturbed.add(digest)
        return replace(known, disturbed_attempts=known.disturbed_attempts + is_first)

    def finished(self, program: str, *, is_open: bool) -> Measurement | None:
        """What is known of a program at the end of its second compile, and lasts; None where nothing does.

        Args:
            is_open: whether a region of it was measured on a busy machine: a few more compiles measure that again.
        """
        # Another process may know more by now than this one.
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
