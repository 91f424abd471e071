"""Measuring of all contenders: those of one precision have a process each, and take turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from hlo_dispatch.bench.generate.peers import PEERS, missing
from hlo_dispatch.bench.generate.plan import CALLS, Contender, GenerationPlan, has_file
from hlo_dispatch.bench.worker import Worker, WorkerFailed

_PROCESS = "hlo_dispatch.bench.generate.process"
_RECORDED = 5


def run(plan: GenerationPlan, say: Callable[[str], None], done: Container[str] = ()) -> Iterator[dict[str, Any]]:
    """One entry for each contender, after each precision; what failed has a problem instead of times.

    Args:
        done: names of entries; a precision that has all of them is left out.

    Raises:
        KeyboardInterrupt: behind the entries of the precision that it cut, those that have samples.
    """
    for precision, contenders in plan.groups.items():
        if all(contender.name in done for contender in contenders):
            continue
        say(f"{precision}: {len(contenders)} processes in turns")
        cut: KeyboardInterrupt | None = None
        with tempfile.TemporaryDirectory(prefix="hlo-dispatch-generate-") as folder:
            turns = _Turns(plan, contenders, folder, say)
            try:
                turns.load()
                turns.measure()
            except KeyboardInterrupt as interrupt:
                cut = interrupt
            finally:
                turns.close()
        if cut is not None:
            yield from (entry | {"cut": True} for entry in turns.entries.values() if any(entry["samples"].values()))
            raise cut
        yield from turns.entries.values()


class _Turns:
    """The processes of one precision; one that fails is noted, and the others go on."""

    def __init__(
        self, plan: GenerationPlan, contenders: Sequence[Contender], folder: str, say: Callable[[str], None]
    ) -> None:
        self._plan, self._contenders, self._folder, self._say = plan, contenders, folder, say
        self._workers: dict[str, Worker] = {}
        self.entries: dict[str, dict[str, Any]] = {
            contender.name: {
                "name": contender.name, "size": plan.size, "batch": plan.batch, "precision": contender.precision,
                "dtype": contender.dtype, "way": contender.way, "form": contender.form, "turns": plan.turns,
                "samples": {name: [] for name in plan.requests(contender)},
            }
            for contender in contenders
        }  # fmt: skip

    def load(self) -> None:
        """Start and load all, one after the other."""
        for contender in self._contenders:
            entry = self.entries[contender.name]
            absent = missing(contender.way, contender.precision) if contender.way in PEERS else ""
            if absent:
                entry["problem"] = absent
                continue
            self._say(f"{contender.name}: loading")
            settings = self._settings(contender)
            if has_file(contender.way):
                self._write(contender, settings)
            if "problem" in entry:
                continue
            self._workers[contender.name] = Worker(_PROCESS)
            self._ask(contender, {"load": settings}, entry.update)

    def _settings(self, contender: Contender) -> dict[str, Any]:
        plan, requests = self._plan, list(self._plan.requests(contender).values())
        shared = {"way": contender.way, "size": plan.size, "batch": plan.batch, "requests": requests}
        if contender.way in PEERS:
            return shared | {"precision": contender.precision}
        dtype = {"f32": "float32", "bf16": "bfloat16"}[contender.dtype]
        return shared | {
            "form": contender.form, "dtype": dtype, "capacity": plan.capacities[0], "policy": plan.policy,
        }  # fmt: skip

    def _write(self, contender: Contender, settings: dict[str, Any]) -> None:
        """Have a process of its own, whose memory goes with it, write the contender's file."""
        self._workers[contender.name] = writer = Worker(_PROCESS)
        self._ask(contender, {"write": settings | {"folder": self._folder}}, settings.update)
        writer.close()

    def measure(self) -> None:
        """All requests of all, so many turns, in an order that changes; then what is measured once."""
        for turn in range(self._plan.turns):
            for contender in self._contenders[:: 1 if turn % 2 == 0 else -1]:
                for name, request in self._plan.requests(contender).items():
                    samples = self.entries[contender.name]["samples"][name]
                    self._ask(contender, request, lambda answer, kept=samples: kept.extend(answer["samples"]))
        for contender in self._contenders:
            entry, request = self.entries[contender.name], self._plan.first_token
            if self._plan.is_profiled and contender.way not in PEERS:
                profiled = request | {"profile": _RECORDED, "seconds": 0.5}
                self._ask(contender, profiled, lambda answer, entry=entry: entry.update(profile=answer))
            self._ask(contender, request | {"memory": CALLS}, entry.update)

    def _ask(self, contender: Contender, request: dict[str, Any], keep: Callable[[dict[str, Any]], object]) -> None:
        entry = self.entries[contender.name]
        if "problem" in entry:
            return
        try:
            keep(self._workers[contender.name].ask(request))
        except WorkerFailed as error:
            entry["problem"] = str(error)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.close()
