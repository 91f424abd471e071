"""Campaign: every peer on every configuration, one process for each peer in each round, measuring in turns.

The processes of a round wait for one another, and take several short turns each: what a shared machine does to one peer
it does to the next. A file has an entry for each configuration, with one record for each peer and round, so a campaign
can be stopped at any point and goes on there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

from hlo_dispatch.bench.models.catalogue import MODELS, OURS, Job
from hlo_dispatch.bench.models.peer_process import PeerFailed, PeerProcess
from hlo_dispatch.bench.result_files import Results
from hlo_dispatch.bench.worker import XLA_ONEDNN_FLAGS, with_flags

Say = Callable[[str], None]
ROUNDS = 3
TURNS = 5
"""How often each peer measures in a round."""
TUNING = 30.0
"""Seconds that the pass may measure in, once for each configuration and before the first round."""
_BUDGET = "HLO_DISPATCH_MEASURE_SECONDS"


def run(
    jobs: Sequence[Job],
    results: Results,
    *,
    peers: Sequence[str],
    rounds: int = ROUNDS,
    seconds: float = 3.0,
    policy: str = "measure",
    tuning: float = TUNING,
    options: dict[str, int] | None = None,
    resume: bool = False,
    say: Say = lambda text: None,
) -> list[dict[str, Any]]:
    """Measure; after every round the file is written.

    Args:
        rounds: how often each peer is measured; the order is reversed from one round to the next.
        seconds: measuring time of each process, after compiling, in all its turns.
        policy: of the pass, for the peer "ours".
        options: for the models' builders, instead of their real sizes.
        resume: keep the rounds that the file has.

    Raises:
        KeyboardInterrupt: with everything that was measured in the file.
    """
    for number, job in enumerate(jobs, 1):
        entry = results.get(job.name) if resume else None
        entry = entry or {"name": job.name, "model": job.model, "dtype": job.dtype, "batch": job.batch, "peers": {}}
        entry.setdefault("failed", {})
        measured: dict[str, list[dict[str, Any]]] = {peer: entry["peers"].setdefault(peer, []) for peer in peers}
        for turn in range(rounds):
            missing = [peer for peer in peers if len(measured[peer]) <= turn and peer not in entry["failed"]]
            for group in _together(job, missing[:: -1 if turn % 2 else 1]):
                made = _Round(job, options or {}, policy)
                for peer in group:
                    say(f"{number} of {len(jobs)}: {job.name}, round {turn + 1} of {rounds}, {peer}")
                    made.tune(peer, 0 if measured[peer] else tuning)
                records = made.measure([peer for peer in group if peer not in made.failed], seconds)
                for peer, record in records.items():
                    measured[peer].append(record)
                for peer, why in made.failed.items():
                    say(f"{job.name}, {peer}: {why}")
                entry["failed"] |= made.failed
                results.put(entry)
    return [entry for job in jobs if (entry := results.get(job.name))]


def _together(job: Job, peers: Sequence[str]) -> list[Sequence[str]]:
    """Whose processes are there at the same time."""
    return [[peer] for peer in peers] if MODELS[job.model].is_large else [peers] if peers else []


class _Round:
    """The processes of several peers, one each, that take turns."""

    def __init__(self, job: Job, options: dict[str, int], policy: str) -> None:
        self._job, self._options, self._policy = job, options, policy
        self.failed: dict[str, str] = {}
        """Why a peer has no record."""

    def tune(self, peer: str, seconds: float) -> None:
        """Let the pass measure kernels for so long, where it is to choose by measuring."""
        if peer in OURS and self._policy == "measure" and seconds:
            with self._noted(peer), self._process(peer, {_BUDGET: str(seconds)}) as process:
                process.compile()

    def measure(self, peers: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
        """A record of each peer that did not fail."""
        records: dict[str, dict[str, Any]] = {}
        with contextlib.ExitStack() as running:
            processes: dict[str, PeerProcess] = {}
            for peer in peers:
                with self._noted(peer):
                    processes[peer] = running.enter_context(self._process(peer, _environment(peer)))
                    processes[peer].compile()
            for peer in [*processes] * TURNS:
                if peer not in self.failed:
                    with self._noted(peer):
                        processes[peer].measure(seconds / TURNS)
            for peer, process in processes.items():
                if peer not in self.failed:
                    with self._noted(peer):
                        records[peer] = process.end()
        return records

    def _process(self, peer: str, environment: dict[str, str]) -> PeerProcess:
        return PeerProcess(peer, self._job, self._options, self._policy, environment)

    @contextlib.contextmanager
    def _noted(self, peer: str) -> Generator[None]:
        """A peer that fails is noted, and the others go on."""
        try:
            yield
        except PeerFailed as error:
            self.failed[peer] = str(error)


def _environment(peer: str) -> dict[str, str]:
    if peer == "xla-onednn":
        return with_flags(XLA_ONEDNN_FLAGS)
    # What tuning did not reach is not measured inside of what is timed.
    return {_BUDGET: "0"} if peer in OURS else {}
