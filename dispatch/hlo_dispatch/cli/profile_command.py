"""Command `profile`: time by region and by kind, and the largest instructions that stay in generated code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hlo_dispatch.cli.sources import optimized_source
from hlo_dispatch.ir import module_files
from hlo_dispatch.report.terminal import console, make_table, print_content, row
from hlo_dispatch.report.wording import duration, plural

if TYPE_CHECKING:
    from hlo_dispatch.bench.profile import TimeProfile

_SHOWN = 12


def profile(
    program: Annotated[
        str, typer.Argument(metavar="FILE|MODEL", help="A dumped module, or a model of `bench models`.")
    ],
    dtype: Annotated[str, typer.Option(help="Of a model: f32 or bf16.")] = "f32",
    batch: Annotated[int, typer.Option(min=1, help="Of a model.")] = 1,
    small: Annotated[bool, typer.Option("--small", help="A tiny one of a model.")] = False,
    runs: Annotated[int, typer.Option(min=2, help="Recorded runs of each side.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time for measuring whole runs.")] = 2.0,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="measure, stored, heuristic, always or never; else HLO_DISPATCH_POLICY decides."),
    ] = None,
    tables: Annotated[list[Path], typer.Option("--tables", metavar="FILE", help="A table of yours.")] = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help="Add it to these results.")
    ] = None,
) -> None:
    """Run a program stock and dispatched; list each region's time, the largest of what is left, and time by kind."""
    from hlo_dispatch.bench.profile import profile_module
    from hlo_dispatch.selection.decide import policy_or_default

    module = _module(program, dtype, batch, small)
    with module_files.named(program):
        found = profile_module(
            module, tables=tables or None, policy=policy_or_default(policy, "measure"), runs=runs, seconds=seconds
        )
    if output is not None:
        from hlo_dispatch.bench.result_files import Results

        Results.open(output, "profiles").put({"name": _title(program, dtype, batch)} | found.to_dict())
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        print_profile(found)


def _title(program: str, dtype: str, batch: int) -> str:
    return Path(program).name if Path(program).suffix or program == "-" else f"{program} {dtype} batch {batch}"


def _module(program: str, dtype: str, batch: int, small: bool) -> bytes | str:
    from hlo_dispatch.bench.models.catalogue import MODELS, jobs

    if program not in MODELS and (Path(program).exists() or Path(program).suffix or program == "-"):
        return optimized_source(program)
    (job,) = jobs((program,), (dtype,), (batch,))
    print(f"… building {job.name}", file=sys.stderr)
    os.environ.setdefault("KERAS_BACKEND", "jax")
    from hlo_dispatch.bench.models import in_jax
    from hlo_dispatch.jax_plugin.explaining import optimized

    options = dict(MODELS[program].small) if small else {}
    function, arguments = in_jax.build(program, dtype, batch, options)
    return optimized(function, *arguments)


def print_profile(found: TimeProfile) -> None:
    """Regions, what is left, time by kind, and two closing lines."""
    from hlo_dispatch.bench.kinds_view import kinds_content

    out = console()
    if found.regions:
        table = make_table("", "region", "result", "computed by", "stock", "of stock", "dispatched", "faster by")
        for column in table.columns[4:]:
            column.justify = "right"
        for region in found.regions[:_SHOWN]:
            ours = region.dispatched
            cells = ("", "") if ours is None else (duration(ours), f"{region.stock / ours:.1f}x" if ours else "")
            share = f"{region.stock / found.stock_instructions:.0%}"
            by = region.kernel or f"XLA: {region.why}"
            row(table, str(region.count), region.formula, region.shape, by, duration(region.stock), share, *cells)
        out.print(table)
        if len(found.regions) > _SHOWN:
            out.print(Text(f"… and {plural(len(found.regions) - _SHOWN, 'smaller kind')} of region (--json has them)"))
    table = make_table("", "left in generated code", "result", "the largest", "time", "of dispatched")
    for column in table.columns[4:]:
        column.justify = "right"
    for left in found.left[:_SHOWN]:
        share = f"{left.seconds / found.dispatched_instructions:.0%}"
        row(table, str(left.count), left.opcode, left.shape, left.name, duration(left.seconds), share)
    out.print(table)
    print_content(out, kinds_content(found.kinds))
    rest = sum(left.seconds for left in found.left)
    out.print(
        Text(
            f"{found.module}: stock {duration(found.stock)}, dispatched {duration(found.dispatched)}, "
            f"{found.stock / found.dispatched:.2f}x; {duration(rest)} of a dispatched run in generated code"
        )
    )
    out.print(
        Text(
            "Times of instructions are XLA's profiler's; what runs at the same time counts twice. Inputs are random. "
            "A fusion's time is shared among its regions."
        )
    )
