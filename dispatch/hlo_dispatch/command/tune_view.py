"""The command `tune`: reads a module, measures with a progress line, prints a table or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from hlo_dispatch.autotune.tuner import TuningProgress
from hlo_dispatch.jax_plugin.program_tuning import TunedProgram, tune_program
from hlo_dispatch.jax_plugin.tuning import Tuned, TunedRegion, tune_module
from hlo_dispatch.policy.measured import STOCK
from hlo_dispatch.reporting.present import console, duration, make_table, plural, row, summary


def run(
    module: bytes | str, *, tables: Sequence[Path], seconds: float | None, validate_only: bool, as_json: bool
) -> int:
    """Tune a module and say what was found; returns the exit status: 1 if a kernel computed something wrong."""
    with _progress() as step:
        tuned = tune_module(module, tables=tables or None, seconds=seconds, validate_only=validate_only, step=step)
    if as_json:
        print(json.dumps(tuned.to_dict(), indent=2))
    else:
        print_tuned(tuned, validate_only=validate_only)
    return 1 if tuned.reproducers else 0


def run_for_program(
    command: str, *, tables: Sequence[Path], seconds: float | None, validate_only: bool, as_json: bool
) -> int:
    """Tune every module of a program; returns the exit status: 1 if a kernel was wrong or the program failed."""
    with _progress() as step:
        found = tune_program(
            command, tables=tables, seconds=seconds, validate_only=validate_only, quietly=as_json,
            step=lambda module: step, told=_say,
        )  # fmt: skip
    if as_json:
        print(json.dumps([tuned.to_dict() for tuned in found.tuned], indent=2))
    else:
        for tuned in found.tuned:
            print_tuned(tuned, validate_only=validate_only)
    _say(_program_closing(found))
    has_failed = found.status != 0 and not found.was_ended
    return 1 if has_failed or any(tuned.reproducers for tuned in found.tuned) else 0


def _program_closing(found: TunedProgram) -> str:
    regions = sum(len(tuned.regions) for tuned in found.tuned)
    parts = [
        f"hlo-dispatch: {plural(regions, 'different region')} in {plural(len(found.tuned), 'module')} of the program's "
        f"{found.modules}, {duration(sum(tuned.seconds for tuned in found.tuned))}"
    ]
    if found.is_interrupted:
        parts.append("ended before all were tuned; what was measured is kept")
    if found.status:
        how = f"with status {found.status}" if found.status > 0 else f"by signal {-found.status}"
        parts.append(f"the program ended {how}")
    return "; ".join(parts)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def print_tuned(tuned: Tuned, *, validate_only: bool = False) -> None:
    """The table of regions, the wrong ones, and a closing line."""
    out = console()
    if tuned.regions:
        out.print(_validated(tuned.regions) if validate_only else _table(tuned.regions))
        out.print()
    for sentence in tuned.reproducers:
        out.print(Text(f"wrong result: {sentence}"))
    out.print(Text(summary(tuned.report)))
    out.print(Text(_closing(tuned)))


def _closing(tuned: Tuned) -> str:
    parts = [f"{plural(len(tuned.regions), 'different region')} in {duration(tuned.seconds)}"]
    gain = sum(region.count * region.gain for region in tuned.regions)
    if gain:
        parts.append(f"{duration(gain)} saved by a run, all regions together")
    for count, what in (
        (tuned.left, "not reached"),
        (tuned.unmeasurable, "that cannot be run alone"),
        (tuned.unclear, "where the machine was too busy to tell"),
        (tuned.failures, "whose measuring failed"),
    ):
        if count:
            parts.append(f"{count} {what}: left to the heuristic")
    return "; ".join(parts)


def _table(regions: Sequence[TunedRegion]) -> Table:
    table = make_table("", "region", "result", "stock ms", "with the kernel, ms", "chosen", "margin")
    for region in regions:
        others = {variant: seconds for variant, seconds in region.seconds.items() if variant != STOCK}
        times = "\n".join(f"{_milliseconds(seconds)} {variant}" for variant, seconds in others.items())
        stock = _milliseconds(region.seconds.get(STOCK))
        row(table, str(region.count), region.formula, region.shape, stock, times, region.chosen, _margin(region))
    return table


def _validated(regions: Sequence[TunedRegion]) -> Table:
    table = make_table("", "region", "result", "variant", "difference", "verdict")
    for region in regions:
        for variant, value in region.differences.items():
            verdict = "wrong" if variant in region.refused else "right"
            row(table, str(region.count), region.formula, region.shape, variant, f"{value:.1e}", verdict)
    return table


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _margin(region: TunedRegion) -> str:
    stock = region.seconds.get(STOCK)
    if not stock or region.chosen == STOCK:
        return ""
    return f"{region.gain / stock:.0%} ± {region.noise / stock:.0%}"


@contextmanager
def _progress() -> Generator[TuningProgress]:
    target = console(errors=True)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=target,
        transient=True,
        disable=not target.is_terminal,
    )
    task = bar.add_task("reading", total=None)

    def step(what: str, done: int, count: int, left: float) -> None:
        if bar.disable:
            if what and done % 10 == 0:
                print(f"… measuring {done} of {count}", file=sys.stderr)
            return
        bar.update(task, description=Text(what[:60] or "measured").markup, total=count, completed=done)

    with bar:
        yield step
