"""Command `tune`: reads a module, measures with a progress line, prints a table or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from hlo_dispatch.autotune.tuner import TuningProgress
from hlo_dispatch.jax_plugin.program_tuning import TunedProgram, tune_program
from hlo_dispatch.jax_plugin.tuning import tune_module
from hlo_dispatch.jax_plugin.tuning_result import Tuned, tuned_content
from hlo_dispatch.report.terminal import console, print_content
from hlo_dispatch.report.wording import duration, plural


def run(
    module: bytes | str, *, tables: Sequence[Path], seconds: float | None, validate_only: bool, as_json: bool
) -> int:
    """Tune a module and print the results; returns the exit status: 1 if a kernel's result was wrong."""
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
            step=lambda module: step, announce=_say,
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
    print_content(console(), tuned_content(tuned, validate_only=validate_only))


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
