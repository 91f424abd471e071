"""Measures what a module's plan does not know: largest first, within a budget, one process at a time.

Failing is no option inside a user's compile: what cannot be measured is left to the heuristic and counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.routine import RoutineMatch
from hlo_dispatch.policy import trial
from hlo_dispatch.policy.candidate import Ask, Default, forms_of
from hlo_dispatch.policy.context import Context
from hlo_dispatch.policy.excerpt import Excerpt
from hlo_dispatch.policy.measure import Effort, Task, Unclear, Unmeasurable, measure
from hlo_dispatch.policy.measured import Knowledge, Measured
from hlo_dispatch.policy.reproducer import Reproducer
from hlo_dispatch.policy.store import Store
from hlo_dispatch.policy.wanted import Unknown, region_of

_LOCK_FILE = "measuring.lock"
_POLL_SECONDS = 0.02
PROGRAM_SHARE = 8
"""So many times the budget may be spent on trying a program as a whole: what is large takes long to compile, and region
by region it may become slower than stock."""
_logger = logging.getLogger("hlo_dispatch")
# Two measurements at once would measure each other.
_one_thread = threading.Lock()

Step = Callable[[str, int, int, float], None]
"""Told what is measured (nothing: it is over), how many regions are done, how many there are (0: it is the whole
program), and the seconds that are left."""
BuildOne = Callable[[Excerpt, Default, str], bytes | None]
"""An excerpt, what is dispatched by default, a form → the module with its one kernel call."""


@dataclass
class Tally:
    """What a tuner did so far."""

    measured: int = 0
    found: int = 0
    """Measured meanwhile by another process."""
    unmeasurable: int = 0
    unclear: int = 0
    """Too much else was going on to tell."""
    failures: int = 0
    left: int = 0
    """Regions that the budget did not reach."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Record:
    """One region and what is known of it now."""

    region: Unknown
    measured: Measured


@dataclass
class Tuner:
    """Measures regions into a store and into what this process knows."""

    store: Store
    context: Context
    knowledge: Knowledge
    effort: Effort
    build: BuildOne
    threads: int
    budget: float | None = None
    """Seconds for one module; None: as long as it takes."""
    step: Step = lambda what, done, count, left: None
    timed: bool = True
    """False only compares results."""
    tally: Tally = field(default_factory=Tally)
    given_up: set[str] = field(default_factory=set)
    """Regions that cannot be measured; not tried again in this process."""
    records: list[Record] = field(default_factory=list)
    """What was learnt, in order."""
    remembers: bool = True
    prepare: Callable[[], None] = lambda: None
    """Called before anything is measured."""
    _deadline: float = float("inf")
    _program_deadline: float = float("inf")
    _reached_all: bool = True
    _has_guessed: bool = False
    """Whether the program was tried before its regions, in this very compile."""

    def for_one_module(self) -> Tuner:
        """The same tuner, its budget beginning now; it counts and remembers in the same places."""
        begun = replace(self)
        if self.budget is not None:
            now = time.perf_counter()
            begun._deadline = now + self.budget
            begun._program_deadline = now + self.budget * PROGRAM_SHARE
        return begun

    def __call__(self, unknown: Sequence[Unknown], ask: Ask) -> int:
        """Measure as many as the budget allows; returns how many are known now."""
        todo = [region for region in unknown if region.digest not in self.given_up]
        if not todo:
            return 0
        start = time.perf_counter()
        learnt = done = 0
        try:
            for region in todo:
                left = self._deadline - time.perf_counter()
                if left <= 0:
                    break
                if not done:
                    self.prepare()
                self.step(region.default.candidate.match.formula, done, len(todo), left)
                learnt += self._learn(region, ask, left)
                done += 1
        finally:
            self.step("", done, len(todo), 0.0)
            self.tally.seconds += time.perf_counter() - start
            self.tally.left += len(todo) - done
            self._reached_all = done == len(todo)
        return learnt

    def _learn(self, region: Unknown, ask: Ask, left: float) -> bool:
        with self._alone(left) as is_ours:
            if not is_ours:
                return False
            measured = self.store.get(self.context, region.digest) if self.timed else None
            if measured is not None and (measured.thorough or not self.effort.is_thorough):
                self.tally.found += 1
            else:
                measured = self._try(
                    region.digest,
                    region.match.formula,
                    lambda: measure(self._task(region, ask), self.effort, self._keeper(region), timed=self.timed),
                )
        if measured is None:
            return False
        if self.remembers:
            self.records.append(Record(region, measured))
        if not measured.seconds and not measured.refused:
            return False  # its results are right, and nothing is known of its speed
        self.knowledge.add(region.digest, measured)
        return True

    def whole(self, program: str, stock: bytes, variants: Callable[[], Mapping[str, bytes]], *, is_final: bool) -> None:
        """Measure a whole program against stock, before its regions or, if all of them were reached, after them."""
        # One compile pays for one long trial, not for two.
        left = (self._deadline if self._has_guessed else self._program_deadline) - time.perf_counter()
        # Without a budget every region is reached, and the answer would be asked for once more.
        is_superfluous = not self._reached_all if is_final else self.budget is None
        if not self.timed or is_superfluous or left <= 0 or program in self.given_up:
            return
        start = time.perf_counter()
        has_guessed, self._has_guessed = self._has_guessed, True
        with self._alone(left) as is_ours:
            if not is_ours:
                return
            self.prepare()
            self.step(trial.PROGRAM, 0, 0, left)
            measured = self.store.get(self.context, program)
            # What was measured thoroughly may have changed what is compared.
            if measured is None or (is_final and (not measured.thorough or self.effort.is_thorough)):
                measured = self._try(
                    program, trial.PROGRAM, lambda: trial.compare(stock, variants(), left=left, is_final=is_final)
                )
            self.step("", 0, 0, 0.0)
        if measured is not None:
            self.knowledge.add(program, measured)
        elif has_guessed:
            # Another compile has more time for it.
            self.given_up.discard(program)
        self.tally.seconds += time.perf_counter() - start

    def _try(self, digest: str, what: str, make: Callable[[], Measured]) -> Measured | None:
        """Measure, and keep what was found; None where nothing was, which is not tried again in this process."""
        self.given_up.add(digest)
        try:
            measured = make()
        except Unmeasurable as reason:
            self.tally.unmeasurable += 1
            _logger.debug("%s cannot be measured: %s", what, reason)
            return None
        except Unclear:
            self.tally.unclear += 1
            return None
        except Exception as error:
            self.tally.failures += 1
            if os.environ.get("HLO_DISPATCH_STRICT") == "1":
                raise
            _logger.debug("measuring %s failed", what, exc_info=error)
            return None
        self.tally.measured += 1
        for sentence in measured.refused.values():
            _logger.warning("a kernel is not used because its result is wrong: %s", sentence)
        if self.timed or measured.refused:
            self.store.put(self.context, digest, measured)
        self.given_up.discard(digest)
        return measured

    def _task(self, region: Unknown, ask: Ask) -> Task:
        default = region.default
        match = default.candidate.match
        excerpt = region.cutter.cut(region_of(region.match, default))
        if isinstance(excerpt, Refusal):
            raise Unmeasurable(excerpt.sentence)
        # A routine's forms are different libraries, of which nobody knows which is faster here.
        most_forms = len(match.routine.kernels) if isinstance(match, RoutineMatch) else self.effort.most_forms
        return Task(
            excerpt=excerpt,
            forms=list(islice(forms_of(region.match, default, ask), most_forms)),
            build=lambda form: self.build(excerpt, default, form),
            tolerance=region.numerics.tolerance,
            footprint=region.footprint,
            is_entangled=region.is_entangled,
            is_lonely=region.is_lonely,
            threads=self.threads,
            formula=match.formula,
            shape=str(match.output.shape).partition("{")[0],
            kernel=match.anchor.kernel,
        )

    def _keeper(self, region: Unknown) -> Callable[[str, Reproducer], str]:
        def keep(form: str, reproducer: Reproducer) -> str:
            folder = self.store.directory / "reproducers" / f"{region.digest[:16]}-{_file_name(form)}"
            try:
                return str(reproducer.keep(folder))
            except OSError as problem:
                return f"(could not be kept: {problem})"

        return keep

    @contextlib.contextmanager
    def _alone(self, left: float) -> Iterator[bool]:
        """Nobody else on this machine measures meanwhile; False where that did not come about in time.

        Polls instead of waiting, so that other Python threads run on and a killed process holds nobody up.
        """
        deadline = time.perf_counter() + left
        while not _one_thread.acquire(timeout=_POLL_SECONDS):
            if time.perf_counter() > deadline:
                yield False
                return
        try:
            with _locked_file(self.store.directory / _LOCK_FILE, deadline) as is_ours:
                yield is_ours
        finally:
            _one_thread.release()


@contextlib.contextmanager
def _locked_file(path: Path, deadline: float) -> Iterator[bool]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError:
        # Where nothing can be written nobody shares measurements either.
        yield True
        return
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.perf_counter() > deadline:
                    yield False
                    return
                time.sleep(_POLL_SECONDS)
        yield True


def _file_name(form: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in form)
