"""Everyday operations against PyTorch, eager, and NumPy: stock and ours, right or wrong against float64.

    hlo-dispatch bench everyday [KIND]... [--elements N,…] [--dtype TYPE,…] [--gradients] [--policy POLICY]

Peers run in a process of their own and take turns with JAX. A row falls short where ours is slower than `OF_BEST` of
the best of all at `LARGE` elements and more, or than `OF_STOCK` of stock at any size.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from rich.console import Console

from hlo_dispatch.bench.everyday_programs import DTYPES, KINDS, OPERATIONS, EverydayOperation, drawn
from hlo_dispatch.bench.programs import BenchProgram
from hlo_dispatch.bench.public import stock_and_ours
from hlo_dispatch.bench.worker import Worker, WorkerFailed
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.report.terminal import make_table, row

ROUNDS = 3
OF_BEST, LARGE, OF_STOCK = 0.9, 100_000, 0.98
Say = Callable[[str], None]


@dataclass(frozen=True)
class EverydayPlan:
    """What is measured, and how."""

    kinds: Sequence[str] = KINDS
    elements: Sequence[int] = (1_000, 100_000, 1_000_000)
    dtypes: Sequence[str] = ("f32", "f64")
    gradients: bool = False
    policy: str = "measure"
    seconds: float = 0.6
    """Of timing, for each row."""


def run(plan: EverydayPlan, say: Say) -> Iterator[dict[str, Any]]:
    """Compile, compare and time, one entry for each row.

    Raises:
        WorkerFailed: the peers' process cannot begin.
    """
    worker = Worker("hlo_dispatch.bench.everyday_worker")
    try:
        if "PyTorch" not in worker.ask({"hello": True})["peers"]:
            say("no PyTorch: pip install torch")
        for number, operation in enumerate(OPERATIONS):
            if operation.kind not in plan.kinds:
                continue
            for dtype, elements, gradient in _cases(operation, plan):
                name = f"{operation.kind}: {operation.name}, {elements:.0e} {dtype}{', gradient' * gradient}"
                say(name)
                peers = _Peers(worker, [number, dtype, elements, gradient])
                # Elsewhere it would make 64-bit indices of 32-bit programs.
                with jax.enable_x64(dtype == "f64"):
                    measured = _measured(operation, dtype, elements, gradient, plan, peers)
                yield {"name": name, "elements": elements, **measured}
    finally:
        worker.close()


def _cases(operation: EverydayOperation, plan: EverydayPlan) -> Iterator[tuple[str, int, bool]]:
    for dtype in plan.dtypes:
        for elements in plan.elements if dtype in operation.dtypes else ():
            yield dtype, elements, False
            if plan.gradients and operation.is_differentiable:
                yield dtype, elements, True


class _Peers:
    """The peers' process with one case made ready; it may fail in it."""

    def __init__(self, worker: Worker, case: list[Any]) -> None:
        self._worker = worker
        self.failed: dict[str, str] = {}
        try:
            self.failed = worker.ask({"case": case})["failed"]
        except WorkerFailed as error:
            if not worker.alive:
                raise
            self.failed = {"peers": str(error)}

    def times(self, seconds: float) -> dict[str, list[float]]:
        return {} if "peers" in self.failed else self._worker.ask({"seconds": seconds})


def program(operation: EverydayOperation, dtype: str, elements: int, gradient: bool) -> BenchProgram:
    """The operation as a function of arrays on JAX's device."""
    arguments = tuple(
        jax.device_put(array.astype(DTYPES[dtype]) if array.dtype == np.float32 else array)
        for array in drawn(operation, elements)
    )

    def forward(*operands: Any) -> Any:
        return operation.jax(jax, *operands)

    def backward(first: Any, *others: Any) -> Any:
        return jax.grad(lambda first: forward(first, *others).sum())(first)

    return BenchProgram(operation.name, backward if gradient else forward, arguments)


def _measured(
    operation: EverydayOperation, dtype: str, elements: int, gradient: bool, plan: EverydayPlan, peers: _Peers
) -> dict[str, Any]:
    ways, entry = stock_and_ours(program(operation, dtype, elements, gradient), plan.policy)
    samples: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        of_jax = interleaved(ways, seconds=plan.seconds / ROUNDS, rounds=20)
        turn = {name: list(timing.samples) for name, timing in of_jax.items()} | peers.times(plan.seconds / ROUNDS)
        for name, values in turn.items():
            samples.setdefault(name, []).extend(values)
    return {
        "seconds": {name: statistics.median(values) for name, values in samples.items()},
        "least": {name: min(values) for name, values in samples.items()},
        "failed": peers.failed,
        **entry,
    }


def ratios(entry: dict[str, Any]) -> tuple[float, float]:
    """Speed over stock and over the best of all others, by medians. A program that is stock's is stock's speed."""
    seconds = entry["seconds"]
    ours = seconds["ours"] if entry["calls"] else min(seconds["ours"], seconds["stock"])
    of_stock = seconds["stock"] / ours if entry["calls"] else 1.0
    return of_stock, min(value for name, value in seconds.items() if name != "ours") / ours


def falls_short(entry: dict[str, Any]) -> bool:
    """Whether ours is behind the best of all, or behind stock."""
    of_stock, of_best = ratios(entry)
    return of_stock < OF_STOCK or (entry["elements"] >= LARGE and of_best < OF_BEST)


def print_everyday(target: Console, entries: list[dict[str, Any]]) -> None:
    """Times in ms, speed over stock and over the best, whether the result is right, kernels."""
    names = ("stock", "ours", "PyTorch", "NumPy")
    table = make_table("operation", *names, "over stock", "over the best", "result", "kernels")
    for column in table.columns[1:7]:
        column.justify = "right"
    for entry in entries:
        of_stock, of_best = ratios(entry)
        row(
            table, entry["name"],
            *(f"{entry['seconds'][name] * 1e3:.3g}" if name in entry["seconds"] else "" for name in names),
            f"{of_stock:.2f}", f"{of_best:.2f}{' !' * falls_short(entry)}", entry["verdict"],
            ", ".join(entry["kernels"]) if entry["calls"] else "stock",
        )  # fmt: skip
    target.print(table)
    short = sum(map(falls_short, entries))
    target.print(f"{len(entries) - short} of {len(entries)} rows are neither behind the best nor behind stock")
