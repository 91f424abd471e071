"""Attempts of one compile at measurements: a result is stored, a failure is counted, and neither stops the compile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from hlo_dispatch.autotune.compare.measure import Unclear, Unmeasurable
from hlo_dispatch.autotune.counters import TuningCounters
from hlo_dispatch.autotune.findings import Findings, Names
from hlo_dispatch.autotune.run.deadline import OutOfTime
from hlo_dispatch.autotune.run.watchdog import TimedOut
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.selection.measurements import KnownMeasurements, Measurement

_logger = logging.getLogger("hlo_dispatch")


@dataclass
class Attempts:
    """What one compile has attempted to measure."""

    findings: Findings
    knowledge: KnownMeasurements
    tally: TuningCounters
    given_up: set[str]
    """Digests that this process does not try to measure again."""
    postponed: set[str]
    """Digests that this compile had no time for."""
    is_thorough: bool
    count: int = 0

    def has_ended(self, digest: str) -> bool:
        """Whether this compile does not attempt it any more."""
        return digest in self.given_up or digest in self.postponed

    def attempt(
        self,
        digest: str,
        names: Names,
        make: Callable[[], Measurement],
        *,
        is_repeated: bool = False,
        is_last: bool = False,
    ) -> Measurement | None:
        """Attempt a measurement and store it; None where it failed, and then this process does not try again.

        Args:
            is_repeated: whether this compile attempts it once more where there was too little time.
            is_last: whether it had its reserved time: what took longer has failed.
        """
        self.given_up.add(digest)
        self.count += 1
        try:
            measured = make()
        except Unmeasurable as reason:
            self.tally.unmeasurable += 1
            _logger.debug("%s cannot be measured: %s", names.formula, reason)
            self.note_failure(digest, names)
            return None
        except OutOfTime as early:
            # Another compile may have more time for it, unless this one had its whole budget.
            self.given_up.discard(digest)
            if not is_repeated:
                self.postponed.add(digest)
            self.tally.unreached.add(digest)
            if self.count == 1 or is_last:
                self.note_failure(digest, names, early)
            return None
        except Unclear as noise:
            self.tally.unclear += 1
            self.note_failure(digest, names, noise)
            return None
        except TimedOut as problem:
            self.tally.unmeasurable += 1
            sentence = "measuring %s is given up on this machine (`hlo-dispatch cache clear` forgets that): %s"
            _logger.warning(sentence, names.formula, problem)
            self.note_failure(digest, names, timed_out_after=problem.seconds)
            return None
        except Exception as error:
            self.tally.failures += 1
            if is_strict():
                raise
            _logger.debug("measuring %s failed", names.formula, exc_info=error)
            return None
        self.tally.measured += 1
        self.tally.unreached.discard(digest)
        for sentence in measured.refused.values():
            _logger.warning("a kernel is not used because its result is wrong: %s", sentence)
        self.given_up.discard(digest)
        return self.findings.stored(digest, measured)

    def note_failure(
        self, digest: str, names: Names, unclear: Unclear | None = None, timed_out_after: float = 0.0
    ) -> None:
        """Count a failed attempt, in the store and for this process."""
        noted = self.findings.failed(
            digest,
            names,
            is_thorough=self.is_thorough,
            timed_out_after=timed_out_after,
            samples=unclear.samples if unclear is not None else None,
        )
        if noted is not None:
            self.knowledge.add(digest, noted)
