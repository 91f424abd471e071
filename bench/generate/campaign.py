"""Measuring of all forms and ways: the forms of a way have a process each, and take turns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.bench.worker import Worker, WorkerFailed

PREFILLS = (128, 512)
POSITIONS = (128, 512)
TURNS = 4
CALLS = 5
_RECORDED = 5


@dataclass(frozen=True)
class GenerationPlan:
    """What is measured."""

    size: str
    forms: Sequence[str]
    ways: Sequence[str]
    dtype: str
    """Empty: bf16 where weights are not frozen, f32 where they are."""
    capacities: Sequence[int]
    """Of the cache, the first for everything; the others for a token at the first position."""
    policy: str
    turns: int = TURNS
    is_profiled: bool = False

    def dtype_of(self, way: str) -> str:
        return self.dtype or ("f32" if way.startswith("frozen") else "bf16")

    def name(self, way: str, form: str) -> str:
        return f"{self.size} {self.dtype_of(way)} {way} {form}"

    @property
    def names(self) -> list[str]:
        """Of all entries."""
        return [self.name(way, form) for way in self.ways for form in self.forms]

    @property
    def measured(self) -> dict[str, dict[str, int]]:
        """Name → request."""
        first, *others = self.capacities
        prefills = {f"prefill {n}": {"prefill": n, "capacity": first, "calls": 1} for n in PREFILLS if n <= first}
        tokens = {f"token at {n}": {"position": n, "capacity": first, "calls": CALLS} for n in POSITIONS if n < first}
        more = {
            f"token at {POSITIONS[0]} of {n}": {"position": POSITIONS[0], "capacity": n, "calls": CALLS} for n in others
        }
        return prefills | tokens | more


def run(plan: GenerationPlan, say: Callable[[str], None], done: Container[str] = ()) -> Iterator[dict[str, Any]]:
    """One entry for each way and form, after each way; what failed has a problem instead of times.

    Args:
        done: names of entries; a way that has all of them is left out.
    """
    for way in plan.ways:
        if all(plan.name(way, form) in done for form in plan.forms):
            continue
        found = {form: _empty(plan, form, way) for form in plan.forms}
        workers: dict[str, Worker] = {}
        try:
            for form, entry in found.items():
                say(f"{entry['name']}: compiling")
                workers[form] = Worker("hlo_dispatch.bench.generate.process")
                _ask(workers, form, entry, {"make": _make(plan, form, way)}, entry.update)
            say(f"{way}: {', '.join(plan.forms)} in turns")
            for turn in range(plan.turns):
                for form in list(found)[:: 1 if turn % 2 == 0 else -1]:
                    _measure(workers, form, found[form], plan)
            for form, entry in found.items():
                request = {"position": POSITIONS[0], "capacity": plan.capacities[0]}
                _ask(workers, form, entry, request | {"memory": CALLS}, entry.update)
                if plan.is_profiled:
                    profiled = request | {"profile": _RECORDED, "seconds": 0.5}
                    _ask(workers, form, entry, profiled, lambda answer, entry=entry: entry.update(profile=answer))
        finally:
            for worker in workers.values():
                worker.close()
        yield from found.values()


def _empty(plan: GenerationPlan, form: str, way: str) -> dict[str, Any]:
    dtype = plan.dtype_of(way)
    return {
        "name": plan.name(way, form), "size": plan.size, "dtype": dtype, "way": way, "form": form,
        "samples": {name: [] for name in plan.measured},
    }  # fmt: skip


def _make(plan: GenerationPlan, form: str, way: str) -> dict[str, Any]:
    dtype = {"f32": "float32", "bf16": "bfloat16"}[plan.dtype_of(way)]
    return {
        "size": plan.size, "form": form, "dtype": dtype, "way": way, "capacity": plan.capacities[0],
        "policy": plan.policy, "requests": list(plan.measured.values()),
    }  # fmt: skip


def _measure(workers: dict[str, Worker], form: str, entry: dict[str, Any], plan: GenerationPlan) -> None:
    for name, request in plan.measured.items():
        samples = entry["samples"][name]
        _ask(workers, form, entry, request, lambda answer, samples=samples: samples.extend(answer["samples"]))


def _ask(
    workers: dict[str, Worker],
    form: str,
    entry: dict[str, Any],
    request: dict[str, Any],
    keep: Callable[[dict[str, Any]], object],
) -> None:
    if "problem" in entry:
        return
    try:
        keep(workers[form].ask(request))
    except WorkerFailed as error:
        entry["problem"] = str(error)
