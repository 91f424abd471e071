"""The worker that runs cases with JAX: stock XLA, both policies, and the kernel itself, in turns in one process."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

import hlo_dispatch
from hlo_dispatch import _kernels
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.bench import in_jax, peak
from hlo_dispatch.bench.cases import Case, make_case
from hlo_dispatch.bench.comparing import reporting
from hlo_dispatch.bench.repeated import CALLS, CALLS_OF_LONG, LONG, only_call, operands_of_call, repeated
from hlo_dispatch.bench.worker import serve, timed
from hlo_dispatch.demo.compare import relative_difference
from hlo_dispatch.demo.timing import once
from hlo_dispatch.report import Report
from hlo_dispatch.vendor import registry

POLICIES = {"ours": "measure", "always": "always"}
SIDES = ("stock", "ours", "always", "raw")


def prepare(case: Case, sides: Sequence[str]) -> tuple[dict[str, Callable[[], object]], dict[str, Any]]:
    """(what to time, by side; what there is to say about the case)."""
    jax.config.update("jax_enable_x64", case.dtype == "f64")
    operands = executable.to_device(in_jax.arguments(case))
    calls: dict[str, Callable[[], object]] = {}
    said: dict[str, Any] = {}
    if "stock" in sides:
        calls["stock"] = _compiled(case, operands)
    for side, policy in POLICIES.items():
        if side in sides:
            with reporting(policy) as reports:
                calls[side] = _compiled(case, operands)
            if side == "ours":
                said["chosen"] = [region.implementation for report in reports for region in report.dispatched]
    if "always" in sides or "raw" in sides:
        with hlo_dispatch.enabled(policy="always"):
            report = hlo_dispatch.explain(in_jax.function(case), *operands)
        alone, count = _kernel_alone(report, operands) if "raw" in sides else ({}, 0)
        calls |= alone
        said |= {
            "calls": count,
            "formulas": [region.formula for region in report.dispatched],
            "kernels": [region.kernel for region in report.dispatched],
            "implementations": [region.implementation for region in report.dispatched],
            "left": [region.reason for region in report.left],
        }
    if "stock" in calls and "always" in calls:
        said["difference"] = _difference(case, calls["stock"](), calls["always"]())
    return calls, said


def _kernel_alone(report: Report, operands: Sequence[Any]) -> tuple[dict[str, Callable[[], object]], int]:
    """The library's own call, and programs that make one and several calls of it; how many several are."""
    if len(report.dispatched) != 1 or report.after is None:
        return {}, 0
    (region,) = report.dispatched
    assert region.kernel is not None
    kernel = registry.kernels().get(region.kernel)
    if kernel is None or not kernel.runs_alone:
        return {}, 0
    alone = only_call(report.after)
    raw = _kernels.raw_call(kernel.target, region.attributes, _buffers(report.after, operands) if alone else [])

    def run_raw(count: int) -> object:
        return _kernels.run_raw(raw, count), operands  # whose memory it reads

    calls: dict[str, Callable[[], object]] = {"raw": partial(run_raw, 1)}
    several = CALLS if once(calls["raw"]) < LONG else CALLS_OF_LONG
    if alone:
        # The same difference on both sides: of calls in a row all but the first find what they need in the caches.
        calls["several raw calls"] = partial(run_raw, several)
        for name, count in (("one call", 1), ("several calls", several)):
            calls[name] = partial(executable.Executable(repeated(report.after, count)), operands)
    return calls, several


def _buffers(after: bytes, operands: Sequence[Any]) -> list[tuple[int, int]]:
    """The call's operands where JAX has them: kernels are faster or slower by some percent with where memory lies."""
    numbers = operands_of_call(after)
    arrays = [None if number is None else operands[number] for number in numbers]
    return [(0, 0) if array is None else (array.unsafe_buffer_pointer(), array.nbytes) for array in arrays]


def _compiled(case: Case, operands: Sequence[Any]) -> Callable[[], object]:
    # A function of its own for each side: JAX remembers compiled modules by function.
    compiled = jax.jit(in_jax.function(case)).lower(*operands).compile()
    return lambda: jax.block_until_ready(compiled(*operands))


def _difference(case: Case, stock: Any, ours: Any) -> float:
    if case.pattern.operation.signs_differ:
        stock, ours = jax.tree.map(abs, stock), jax.tree.map(abs, ours)
    return relative_difference(stock, ours)


def main() -> None:
    """Serve a parent; the sides to run are the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sides", nargs="+", choices=SIDES)
    sides: list[str] = parser.parse_args().sides
    hlo_dispatch.uninstall()
    jax.config.update("jax_enable_compilation_cache", False)
    calls: dict[str, Callable[[], object]] = {}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        if "hello" in request:
            return {"backend": jax.default_backend()}
        if "peak" in request:
            return peak.measure()
        if "case" in request:
            calls, said = {}, {}
            calls, said = prepare(make_case(*request["case"]), sides)
            return said
        return timed(calls, request)

    serve(answer)


if __name__ == "__main__":
    main()
