"""Micro-benchmarks of single patterns against their peers: worker processes, turns, and stored samples.

Sides: `stock` XLA; `xla-onednn`, its own oneDNN path; `ours`, the default policy; `always`, every region that a
kernel can take dispatched; `raw`, the same primitive executed in a loop with nothing around it; `torch`, eager.
Each case goes through all workers several times, so that a drifting machine hits every side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlo_dispatch.bench import repeated
from hlo_dispatch.bench.cases import Case
from hlo_dispatch.bench.result_files import Results, median
from hlo_dispatch.bench.worker import XLA_ONEDNN_FLAGS, Worker, WorkerFailed, with_flags

SIDES = ("stock", "xla-onednn", "ours", "always", "raw", "torch")
_OF_JAX = ("stock", "ours", "always", "raw")
ROUNDS = 3
_FIRST_WITH_FLAGS = (0, 11)
"""Older jaxlibs know the flags and do nothing with them."""

Say = Callable[[str], None]


class Micro:
    """The workers of a campaign; a context manager."""

    def __init__(self, sides: Sequence[str], jax_version: str, say: Say) -> None:
        self._say = say
        self._workers: dict[str, Worker] = {}
        self._prepared: dict[str, str] = {}
        package = __package__ or ""
        own = [side for side in _OF_JAX if side in sides]
        starts: dict[str, Callable[[], Worker]] = {}
        if own:
            starts["jax"] = lambda: Worker(f"{package}.jax_worker", *own)
        if "xla-onednn" in sides and _numbers(jax_version) >= _FIRST_WITH_FLAGS:
            environment = with_flags(XLA_ONEDNN_FLAGS)
            starts["xla-onednn"] = lambda: Worker(f"{package}.jax_worker", "stock", environment=environment)
        elif "xla-onednn" in sides:
            say(f"no xla-onednn: jaxlib {jax_version} has the flags, but they do nothing")
        if "torch" in sides:
            starts["torch"] = lambda: Worker(f"{package}.torch_worker")
        for name, start in starts.items():
            self._start(name, start)
        self._starts = starts

    def _start(self, name: str, start: Callable[[], Worker]) -> None:
        worker = start()
        try:
            worker.ask({"hello": True})
        except WorkerFailed as error:
            worker.close()
            self._say(f"no {name}: {error}")
            return
        self._workers[name] = worker

    def __enter__(self) -> Micro:
        return self

    def __exit__(self, *unused: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def peak(self) -> dict[str, Any] | None:
        """The machine's measured peak; None without a JAX worker."""
        return self._workers["jax"].ask({"peak": True}) if "jax" in self._workers else None

    def measure(self, case: Case, seconds: float) -> dict[str, Any]:
        """Everything about one case, as an entry of a results file."""
        entry = described(case)
        ready: list[str] = []
        for name in list(self._workers):
            try:
                said = self._workers[name].ask({"case": _as_asked(case)})
            except WorkerFailed as error:
                entry["failed"][name] = str(error)
                self._revive(name)
                continue
            entry |= said if name == "jax" else {}
            ready.append(name)
        samples: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            for name in ready[:: 1 if turn % 2 == 0 else -1]:
                try:
                    answer = self._workers[name].ask({"seconds": seconds / ROUNDS})
                except WorkerFailed as error:
                    entry["failed"][name] = str(error)
                    ready.remove(name)
                    self._revive(name)
                    break
                for side, values in answer.items():
                    samples.setdefault(name if name == "xla-onednn" else side, []).extend(values)
        entry["sides"] = {side: {"samples": [round(v, 9) for v in values]} for side, values in samples.items()}
        return entry

    def ready(self, case: Case, side: str) -> str:
        """Make the side's worker ready for single calls of a case; says why it cannot, or nothing."""
        name = _worker_of(side)
        if name not in self._workers:
            return f"no {side} here"
        try:
            # All sides of a worker are made at once, and one after the other is asked for.
            if self._prepared.get(name) != case.name:
                self._workers[name].ask({"case": _as_asked(case)})
                self._prepared[name] = case.name
            if _in_worker(side) not in self._workers[name].ask({"sides": True})["sides"]:
                return f"{side} has nothing for this case"
        except WorkerFailed as error:
            self._prepared.pop(name, None)
            self._revive(name)
            return str(error)
        return ""

    def once(self, side: str) -> float:
        """Seconds of one call of the case that was made ready (a mean of several where it is short)."""
        return self._workers[_worker_of(side)].ask({"once": _in_worker(side)})["seconds"]

    def _revive(self, name: str) -> None:
        """A worker that died on one case is started again for the next."""
        if not self._workers[name].alive:
            self._workers.pop(name).close()
            self._start(name, self._starts[name])


def run(
    cases: Sequence[Case],
    results: Results,
    *,
    sides: Sequence[str] = SIDES,
    seconds: float = 1.0,
    resume: bool = False,
    say: Say = lambda text: None,
) -> list[dict[str, Any]]:
    """Measure cases one after the other; each is in the file before the next begins.

    Args:
        seconds: measuring time of each case in each process.
        resume: leave out what the file has already.

    Raises:
        KeyboardInterrupt: with everything that was measured in the file.
    """
    left = [case for case in cases if not (resume and case.name in results)]
    if len(left) < len(cases):
        say(f"{len(cases) - len(left)} of {len(cases)} cases are measured already")
    if left:
        with Micro(sides, results.header["versions"]["jax"], say) as micro:
            if "peak" not in results.header:
                say("measuring this machine's peak")
                if peak := micro.peak():
                    results.header["peak"] = peak
            for number, case in enumerate(left, 1):
                say(f"{number} of {len(left)}: {case.name}")
                results.put(micro.measure(case, seconds))
    return [entry for case in cases if (entry := results.get(case.name))]


def described(case: Case) -> dict[str, Any]:
    """Description of a case, without measurements."""
    return {
        "name": case.name,
        "pattern": case.pattern.name,
        "shape": case.shape_text,
        "dtype": case.dtype,
        "layout": case.layout,
        "model": case.model,
        "tags": list(case.tags),
        "work": case.work,
        "bytes": case.bytes_moved,
        "failed": {},
    }


def overhead(entry: dict[str, Any]) -> float | None:
    """Seconds that one more call costs in an executable, less one more raw library call; None where there is no such.

    Both are differences: between programs with several calls and one, and between several raw calls in a row and one.
    """
    sides = entry["sides"]
    names = ("one call", "several calls", "raw", "several raw calls")
    one, several, raw, several_raw = (median(sides.get(name)) for name in names)
    if one is None or several is None or raw is None or several_raw is None:
        return None
    return ((several - one) - (several_raw - raw)) / (entry.get("calls", repeated.CALLS) - 1)


def _worker_of(side: str) -> str:
    return "jax" if side in _OF_JAX else side


def _in_worker(side: str) -> str:
    return "stock" if side == "xla-onednn" else side


def _as_asked(case: Case) -> list[Any]:
    return [case.pattern.name, case.shape_text, case.dtype, case.layout]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
