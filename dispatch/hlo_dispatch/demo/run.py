"""`hlo-dispatch demo`: the small example, then whole models, stock against dispatched."""

# pyright: basic
# The frameworks have no complete type hints.
from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from hlo_dispatch.demo import models, seed
from hlo_dispatch.demo.compare import SideBySide, compare, compile_dispatched, compile_stock, relative_difference
from hlo_dispatch.demo.progress import Progress
from hlo_dispatch.errors import HloDispatchError, Unavailable
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.report import Report
from hlo_dispatch.report.terminal import print_report
from hlo_dispatch.report.wording import duration
from hlo_dispatch.vendor.libraries import Library, onednn

SHOWN_BY_DEFAULT = ("resnet50", "bert-layer", "gaussian-process")


def run(names: Sequence[str], *, seconds: float, policy: str) -> int:
    """Show everything; 0 if all of it worked, 1 if a part is missing or wrong."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    chosen = [models.find(name) for name in names or SHOWN_BY_DEFAULT]
    out = Console(highlight=False)
    _prepare(policy)
    library = onednn()
    if isinstance(library, Unavailable):
        out.print(Text(f"there is nothing to show without oneDNN: {library.sentence}"))
        return 1
    good = True
    with Progress() as progress:
        out.print(_heading(library))
        if not names:
            good &= _show_seed(out, progress, policy)
        for model in chosen:
            out.print()
            out.print(Rule(Text(f"{model.title}, batch 1" if model.needs else model.title), align="left"))
            good &= _show_model(out, progress, model, seconds, policy)
    return 0 if good else 1


def _prepare(policy: str) -> None:
    import jax

    import hlo_dispatch

    # Stock must be stock, even if the environment enabled the plugin, and a cached executable would
    # hide which side compiled it.
    hlo_dispatch.uninstall()
    jax.config.update("jax_enable_compilation_cache", False)
    with hlo_dispatch.enabled(policy=policy):
        pass  # an unknown policy or an unusable library is reported here, before any work


def _heading(library: Library) -> Text:
    import jax

    machine = this_machine()
    name = f"oneDNN {library.version} ({library.runtime})"
    return Text(f"jax {jax.__version__}, {name}, {machine.model}, {machine.threads} processors")


# Refusals with these codes are choices, not failures.
_CHOICES = frozenset(("policy", "slower"))


def _show_seed(out: Console, progress: Progress, policy: str) -> bool:
    out.print()
    out.print(Rule(Text("the smallest example"), align="left"))
    workload = seed.conv_relu()
    progress.step(workload.title, 0.0)
    # Small regions are not always worth a kernel; here the point is to see one.
    stock, dispatched = compile_stock(workload), compile_dispatched(workload, policy="always")
    lines = seed.custom_calls(dispatched.text)
    exact = seed.exact_conv_relu(*workload.arguments)
    out.print(Text(workload.title))
    for line in lines:
        out.print(Text(line), soft_wrap=True)
    out.print(
        Text(
            f"largest difference from float64: stock {relative_difference(exact, stock()):.1e}, "
            f"dispatched {relative_difference(exact, dispatched()):.1e}"
        )
    )
    untouched = seed.abs_sqrt()
    before, after = compile_stock(untouched), compile_dispatched(untouched, policy="always")
    same = seed.code(before.text) == seed.code(after.text)
    out.print(
        Text(f"{untouched.title}: " + ("left exactly as XLA made it" if same else "CHANGED, which it should not be"))
    )
    if not lines:
        out.print(Text("no custom-call was made:"))
        for report in dispatched.reports:
            print_report(out, report)
    return bool(lines) and same


def _show_model(out: Console, progress: Progress, model: models.Model, seconds: float, policy: str) -> bool:
    try:
        progress.step("building the model", 0.0)
        workload = model.workload()
        comparison = compare(workload, seconds=seconds, step=progress.step, policy=policy)
    except HloDispatchError as error:
        out.print(Text(str(error)))
        return False
    print_report(out, comparison.report)
    for line in closing_lines(comparison):
        out.print(Text(line))
    return bool(comparison.report.dispatched) or _is_left_by_choice(comparison.report)


def _is_left_by_choice(report: Report) -> bool:
    """Whether kernels could have been used, and XLA's own code is as fast."""
    refusals = [region.refusal for region in report.left]
    return bool(refusals) and all(refusal is not None and refusal.code in _CHOICES for refusal in refusals)


def closing_lines(comparison: SideBySide) -> list[str]:
    """Closing lines: difference of the results, and speedup."""
    stock, dispatched = comparison.stock_time, comparison.dispatched_time
    share = comparison.report.seconds / comparison.stock.seconds
    lines = [
        f"compiling: stock {duration(comparison.stock.seconds)}, of our pass {duration(comparison.report.seconds)} "
        f"({share:.0%} of stock's)",
        f"largest difference from stock, relative to the largest output: {comparison.difference:.1e}",
        f"running: stock {duration(stock.median)} (±{stock.spread:.0%}), "
        f"dispatched {duration(dispatched.median)} (±{dispatched.spread:.0%}); "
        f"medians of {len(stock.samples)} runs each, in turns",
        f"speed-up: {comparison.speedup:.2f}x",
    ]
    if (frozen := comparison.frozen) is not None:
        lines.append(
            f"weights frozen: {duration(frozen.time.median)} (±{frozen.time.spread:.0%}), "
            f"{stock.median / frozen.time.median:.2f}x; the first call, which prepares them, "
            f"{duration(frozen.seconds)}; largest difference from stock {frozen.difference:.1e}"
        )
    return lines
