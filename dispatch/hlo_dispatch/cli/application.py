"""Command line interface of `hlo-dispatch`: parses arguments, calls the library, prints the result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hlo_dispatch.cli import usage
from hlo_dispatch.cli.bench_command import app as bench
from hlo_dispatch.cli.profile_command import profile
from hlo_dispatch.cli.sources import optimized_source
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir import module_files

if TYPE_CHECKING:
    from hlo_dispatch.driver.profile import Profile
    from hlo_dispatch.pattern import Table
    from hlo_dispatch.report import Report

app = typer.Typer(
    help="Vendor kernels under XLA:CPU, without changing the program.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
patterns = typer.Typer(help="The pattern table.", no_args_is_help=True)
app.add_typer(patterns, name="patterns")
cache = typer.Typer(help="The measurement store of this machine.", no_args_is_help=True)
app.add_typer(cache, name="cache")
app.add_typer(bench, name="bench")
app.command()(profile)

Module = Annotated[
    str,
    typer.Argument(metavar="FILE", help="HLO, as text or a serialized module, or StableHLO; - is standard input."),
]
Optimize = Annotated[
    bool,
    typer.Option("--optimize", help="Run XLA's optimizations first, on unoptimized HLO. StableHLO always needs them."),
]
Tables = Annotated[list[Path], typer.Option("--tables", metavar="FILE", help="A table of your own; may be repeated.")]
Policy = Annotated[
    str | None,
    typer.Option("--policy", help="measure, stored, heuristic, always or never; else HLO_DISPATCH_POLICY decides."),
]


def run_application() -> None:
    """Run the command; errors end as one line on standard error."""
    # As jax does when it is imported: XLA's compiler may be loaded without it, and would say what devices there are.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        sys.exit(app(prog_name="hlo-dispatch", standalone_mode=False) or 0)
    except usage.ClickException as error:
        _fail(usage.sentence(error), 2)
    except HloDispatchError as error:
        _fail(str(error), error.exit_status)
    except BrokenPipeError:
        # The reader went away (`| head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", 2)


def _fail(message: str, status: int) -> None:
    if message:
        print("hlo-dispatch:", " ".join(message.split()), file=sys.stderr)
    sys.exit(status)


@app.command()
def demo(
    models: Annotated[
        list[str], typer.Argument(metavar="[MODEL]...", help="Instead of ResNet50 and a BERT layer.")
    ] = [],  # noqa: B006
    seconds: Annotated[float, typer.Option(min=0.1, help="Time spent measuring each model.")] = 6.0,
    policy: Policy = None,
) -> None:
    """Demonstration: a small example, ResNet50 and a BERT layer, stock XLA against dispatched."""
    from hlo_dispatch.demo.run import run
    from hlo_dispatch.selection.decide import policy_or_default

    raise typer.Exit(run(tuple(models), seconds=seconds, policy=policy_or_default(policy, "measure")))


@app.command()
def doctor(
    paths: Annotated[
        bool,
        typer.Option("--paths", help="Only the paths of the native library, its header and the vendors' libraries."),
    ] = False,
) -> None:
    """Check the machine, the libraries and jax; exit 1 if something is missing."""
    from hlo_dispatch.cli.doctor import examine, print_findings

    if paths:
        from hlo_dispatch.kernels import native_paths

        print("\n".join(f"{name}={path}" for name, path in native_paths().items()))
        return
    findings = examine()
    print_findings(findings)
    raise typer.Exit(0 if all(finding.good for finding in findings) else 1)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM|-m MODULE")],
    arguments: Annotated[list[str], typer.Argument(metavar="[ARGS]...")] = [],  # noqa: B006
) -> None:
    """Run a Python program as Python would, with the pass, and hlo_dispatch.jit as jax.jit."""
    # The entry point runs programs before this is loaded (cli/main.py); this is for the list of commands.
    from hlo_dispatch.cli.run_program import run as run_program

    run_program([program, *arguments])


_BELONGS = "The module is for the XLA that optimized its input; compile it with run_backend_only (kernels/hosts.md)."


@app.command()
def rewrite(
    module: Module,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A .hlo or .txt (text) or .pb (binary) file; - is text on standard output.",
        ),
    ] = "-",
    optimize: Optimize = False,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Write XLA's executable, serialized: for machines like this one.")
    ] = False,
    policy: Policy = None,
    tables: Tables = [],  # noqa: B006
    table: Annotated[bool, typer.Option("--table/--no-table", help="Print the report, on standard error.")] = True,
    prepare_constants: Annotated[
        bool,
        typer.Option(
            "--prepare-constants",
            help="Compute what depends on constants alone: for machines like this one.",
        ),
    ] = False,
) -> None:
    """Rewrite a module: supported regions become custom-calls."""
    if compiled and output == "-":
        raise HloDispatchError("an executable is no text: name a file for it with -o")
    as_text = not compiled and module_files.writes_text(output)
    source = optimized_source(module, optimize=optimize)
    with module_files.named(module):
        from hlo_dispatch.api import rewrite

        result = rewrite(source, tables=tables or None, policy=policy, prepare_constants=prepare_constants)
        content = result.text.encode() if as_text else (result.proto or result.original)
        if compiled:
            from hlo_dispatch.jax_plugin.serializing import serialized_executable

            content = serialized_executable(content, tables or None)
    module_files.write_atomically(output, content)
    if table:
        from hlo_dispatch.report.terminal import console, print_report

        print_report(console(errors=True), result.report)
        if result.proto is not None and not compiled:
            typer.echo(_BELONGS, err=True)


@app.command()
def explain(
    module: Module,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    html: Annotated[
        str, typer.Option("--html", metavar="OUT", help="Write a page with the module's graph before and after.")
    ] = "",
    optimize: Optimize = False,
    profile: Annotated[bool, typer.Option("--profile", help="Also print the cost of each entry of the table.")] = False,
    passes: Annotated[bool, typer.Option("--passes", help="Also print what each pass changed, and its time.")] = False,
    policy: Policy = None,
    tables: Tables = [],  # noqa: B006
) -> None:
    """List the regions of a module: formula, kernel, or why XLA computes it."""
    report, tallies = _explained(optimized_source(module, optimize=optimize), module, tables, policy, profile=profile)
    if html:
        from hlo_dispatch.cli.explain_page import write_page

        write_page(report, html)
    if as_json:
        costs = {"profile": tallies.to_list()} if tallies is not None else {}
        print(json.dumps(report.to_dict() | costs, indent=2))
        return
    from hlo_dispatch.cli.explain_view import print_explanation, print_passes
    from hlo_dispatch.report.terminal import console, print_report

    target = console(errors=html == "-")
    if html:
        print_report(target, report)
    else:
        print_explanation(target, report)
    if passes:
        print_passes(target, report.passes)
    if tallies is not None:
        from hlo_dispatch.cli.profile_view import print_profile

        print_profile(target, tallies)


@app.command()
def tune(
    module: Annotated[str, typer.Argument(metavar="[FILE]", help="As for the other commands.")] = "",
    program: Annotated[
        str, typer.Option("--program", metavar="COMMAND", help="Run a program, and tune every module it compiles.")
    ] = "",
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Stop after so long; what is done is kept.")] = None,
    optimize: Optimize = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Only compare the kernels' results with XLA's.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    tables: Tables = [],  # noqa: B006
) -> None:
    """Measure every region of a module in every variant, and store the results; exit 1 if a result was wrong."""
    from hlo_dispatch.cli.tune_view import run, run_for_program

    if bool(module) == bool(program):
        raise HloDispatchError('name a module\'s FILE, or a program: hlo-dispatch tune --program "python train.py"')
    if program:
        status = run_for_program(program, tables=tables, seconds=seconds, validate_only=validate_only, as_json=as_json)
        raise typer.Exit(status)
    source = optimized_source(module, optimize=optimize)
    with module_files.named(module):
        status = run(source, tables=tables, seconds=seconds, validate_only=validate_only, as_json=as_json)
    raise typer.Exit(status)


@cache.command("show")
def show_cache(
    regions: Annotated[bool, typer.Option("--regions", help="Also each region that can be used here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: everything.")] = False,
) -> None:
    """Show the measurement store."""
    from hlo_dispatch.cli.cache_view import show

    show(regions=regions, as_json=as_json)


@cache.command("export")
def export_cache(output: Annotated[str, typer.Argument(metavar="OUT", help="- is standard output.")] = "-") -> None:
    """Write all measurements to a file, for machines like this one."""
    from hlo_dispatch.cli.cache_view import export

    export(output)


@cache.command("import")
def import_cache(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Add the measurements of a file that `export` wrote."""
    from hlo_dispatch.cli.cache_view import load

    load(file)


@cache.command("clear")
def clear_cache() -> None:
    """Forget all measurements."""
    from hlo_dispatch.cli.cache_view import clear

    clear()


@cache.command("prune")
def prune_cache(
    days: Annotated[float | None, typer.Option("--older-than", metavar="DAYS", min=0, help="Only by age.")] = None,
) -> None:
    """Forget measurements of other machines, libraries or versions; or those older than DAYS."""
    from hlo_dispatch.cli.cache_view import prune

    prune(days=days)


@patterns.command("list")
def list_patterns(tables: Tables = []) -> None:  # noqa: B006
    """List the anchors, epilogues and kernels of the table."""
    from hlo_dispatch.cli.patterns_view import print_table

    print_table(_load(tables or None))


@patterns.command("show")
def show_pattern(name: str, tables: Tables = []) -> None:  # noqa: B006
    """Show one entry of the table, and where it is written."""
    from hlo_dispatch.cli.patterns_view import print_entry

    print_entry(_load(tables or None), name)


@patterns.command("check")
def check_patterns(files: Annotated[list[Path], typer.Argument(metavar="FILE...")]) -> None:
    """Check tables of your own together with the shipped ones."""
    from hlo_dispatch.cli.patterns_view import entries

    table = _load(files)
    own = {str(file.resolve()) for file in files}
    count = sum(str(Path(entry.location.file).resolve()) in own for entry in entries(table))
    print(f"OK: {count} {'entry' if count == 1 else 'entries'} in {', '.join(map(str, files))}")


@patterns.command("reference")
def patterns_reference() -> None:
    """Print the language's reference as Markdown: the last part of patterns/README.md."""
    from hlo_dispatch.pattern.reference import reference

    print(reference(), end="")


def _explained(
    source: bytes | str, path: str, tables: list[Path], policy: str | None, *, profile: bool
) -> tuple[Report, Profile | None]:
    from hlo_dispatch.api import profiled, rewrite

    with module_files.named(path):
        if profile:
            return profiled(source, tables=tables or None, policy=policy)
        return rewrite(source, tables=tables or None, policy=policy, details=True).report, None


def _load(tables: list[Path] | None) -> Table:
    from hlo_dispatch.pattern import load_tables, tables_or_default

    return load_tables(tables_or_default(tables))
