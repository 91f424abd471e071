"""Kinds of programs that users of the field met: stock against ours, right or wrong against float64.

    hlo-dispatch bench public [KIND]... [--policy POLICY] [--small]

A result is wrong where it is further from the one in float64 than stock's is, by more than its element type's own
rounding and stock's error four times; of integers where any bit differs from stock's.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from hlo_dispatch.bench.comparing import Ways, blocking, compiled, kernel_calls, reporting
from hlo_dispatch.bench.programs import BenchProgram
from hlo_dispatch.bench.public_programs import KINDS
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.report.terminal import make_table, row

ROUNDINGS = 64
"""Of a result's element type, which sums in another order may be off by."""
OF_STOCK = 4
"""Stock's errors that ours may be."""


def run(
    kinds: Iterable[str], *, policy: str, seconds: float, small: bool, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Compile, compare and time the programs of some kinds, one entry for each."""
    with jax.enable_x64(True):
        for kind in kinds:
            for program in KINDS[kind](small):
                say(f"{kind}: {program.name}")
                yield {"name": f"{kind}: {program.name}", **_measured(program, policy, seconds)}


def _measured(program: BenchProgram, policy: str, seconds: float) -> dict[str, Any]:
    ways, entry = stock_and_ours(program, policy)
    timings = interleaved(ways, seconds=seconds)
    return {"seconds": {name: timing.median for name, timing in timings.items()}, **entry}


def stock_and_ours(program: BenchProgram, policy: str) -> tuple[Ways, dict[str, Any]]:
    """Both ways of running a program, and what there is to say of them besides their times."""
    stock, _ = compiled(program)
    with reporting(policy) as reports:
        ours, _ = compiled(program)
    regions = [region for report in reports for region in report.candidates]
    compared = errors(program, stock, ours)
    ways = {name: blocking(way, program.arguments) for name, way in (("stock", stock), ("ours", ours))}
    return ways, {
        "calls": kernel_calls(ours.as_text()),
        "kernels": sorted({region.kernel for region in regions if region.kernel}),
        "reasons": [f"{region.formula}: {region.reason}" for region in regions],
        "errors": [result.error for result in compared],
        "allowed": [result.allowed for result in compared],
        "verdict": "right" if all(result.is_right for result in compared) else "wrong",
    }


class Compared(NamedTuple):
    """How far one of our results is off, over the largest of the true one, and how far it may be."""

    error: float
    allowed: float

    @property
    def is_right(self) -> bool:
        return self.error <= self.allowed  # so that NaN is wrong


def errors(program: BenchProgram, stock: Any, ours: Any) -> list[Compared]:
    """Each result of a program, by a tolerance of its own.

    A program in float64 has no better reference than stock: what stock may be off by itself is what it is off by in
    float32, in roundings.
    """
    with jax.enable_x64(True):
        exact = jax.tree.leaves(jax.jit(program.function)(*map(_widened, program.arguments)))
    rounded = None
    compared: list[Compared] = []
    for number, (true, one, other) in enumerate(
        zip(exact, *(jax.tree.leaves(way(*program.arguments)) for way in (stock, ours)), strict=True)
    ):
        if not jax.numpy.issubdtype(one.dtype, jax.numpy.floating):
            compared.append(Compared(0.0 if np.array_equal(one, other) else np.inf, 0.0))
            continue
        epsilon = float(jax.numpy.finfo(one.dtype).eps)
        of_stock, of_ours = _error(true, one), _error(true, other)
        if one.dtype == np.float64:
            if rounded is None:
                rounded = jax.tree.leaves(jax.jit(program.function)(*map(_narrowed, program.arguments)))
            of_stock += _error(true, rounded[number]) * epsilon / float(jax.numpy.finfo(np.float32).eps)
        compared.append(Compared(of_ours, max(ROUNDINGS * epsilon, OF_STOCK * of_stock)))
    return compared


def _error(true: Any, result: Any) -> float:
    """How far a result is off, over the largest of the true one."""
    return float(np.abs(np.asarray(result, "float64") - true).max()) / (float(np.abs(true).max()) or 1.0)


def _widened(argument: Any) -> Any:
    """A number in float64; integers as they are."""
    return argument.astype("float64") if jax.numpy.issubdtype(argument.dtype, jax.numpy.floating) else argument


def _narrowed(argument: Any) -> Any:
    """A number of float64 in float32."""
    return argument.astype("float32") if argument.dtype == np.float64 else argument


def print_public(target: Console, entries: list[dict[str, Any]]) -> None:
    """Times, how many times as fast ours is, and whether it is right."""
    table = make_table("program", "stock, ms", "ours, ms", "times", "result", "kernels")
    for column in table.columns[1:4]:
        column.justify = "right"
    for entry in entries:
        stock, ours = (entry["seconds"][way] * 1e3 for way in ("stock", "ours"))
        kernels = ", ".join(entry["kernels"]) if entry["calls"] else "stock"
        row(table, entry["name"], f"{stock:.3g}", f"{ours:.3g}", f"{stock / ours:.2f}", entry["verdict"], kernels)
    target.print(table)
