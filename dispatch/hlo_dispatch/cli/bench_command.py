"""Command `bench`: parses arguments, measures with progress, prints a table."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from typer.core import TyperGroup

DEFAULT = "patterns"


class _DefaultingGroup(TyperGroup):
    """`bench conv_bias_relu` means `bench patterns conv_bias_relu`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_DefaultingGroup,
    add_completion=False,
    help="Measure patterns and models against stock XLA, its oneDNN path, the raw library and other frameworks.\n\n"
    "hlo-dispatch bench conv_bias_relu --shape n=1,c=64,h=56,w=56,k=64,r=3",
)

Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where samples are kept; else the cache folder.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Leave out what the file has already.")]
Json = Annotated[bool, typer.Option("--json", help="For programs: every sample.")]
Patterns = Annotated[list[str], typer.Argument(metavar="[PATTERN]...", help="Such as conv_bias_relu; else all.")]
Shape = Annotated[str, typer.Option(metavar="KEY=N,...", help="Another shape than the listed ones.")]
Dtypes = Annotated[str, typer.Option("--dtype", metavar="TYPE,...", help="f32, bf16, f16, f64, c64.")]
Layout = Annotated[str, typer.Option(help="channels-last or channels-first.")]
Tag = Annotated[str, typer.Option(help="Only cases with this tag: ci, primary, attention.")]


@app.command(DEFAULT)
def bench_patterns(
    patterns: Patterns = [],  # noqa: B006
    shape: Shape = "",
    dtype: Dtypes = "",
    layout: Layout = "",
    tag: Tag = "",
    seconds: Annotated[float, typer.Option(min=0.01, help="Measuring time of a case in each process.")] = 1.0,
    sides: Annotated[str, typer.Option(metavar="SIDE,...", help="Only these ways of running a case.")] = "",
    output: Output = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Measure single patterns, the listed cases or a shape of your own. (The default: the word may be left out.)"""
    from hlo_dispatch.bench import micro, micro_view
    from hlo_dispatch.bench.cases import choose
    from hlo_dispatch.bench.result_files import Results, default_path
    from hlo_dispatch.report.terminal import console

    chosen = choose(patterns, shape=shape, dtypes=_words(dtype), layout=layout, tag=tag)
    asked = _known(_words(sides) or micro.SIDES, micro.SIDES, "side")
    results = Results.open(output or default_path("patterns"), "patterns")
    with _Interruption() as interrupted:
        micro.run(chosen, results, sides=asked, seconds=seconds, resume=resume, say=_say)
    entries = [entry for case in chosen if (entry := results.get(case.name))]
    _finish(results, entries, as_json, lambda: micro_view.print_micro(console(), results.header, entries), interrupted)


@app.command("cases")
def list_cases(patterns: Patterns = [], dtype: Dtypes = "", tag: Tag = "") -> None:  # noqa: B006
    """List the cases: patterns, shapes, element types, and the models they come from."""
    from hlo_dispatch.bench.cases import choose
    from hlo_dispatch.bench.micro_view import print_cases
    from hlo_dispatch.report.terminal import console

    print_cases(console(), choose(patterns, dtypes=_words(dtype), tag=tag))


@app.command("models")
def bench_models(
    models: Annotated[list[str], typer.Argument(metavar="[MODEL]...", help="Such as resnet50; else all.")] = [],  # noqa: B006
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE,...", help="f32, bf16; else both.")] = "",
    batch: Annotated[str, typer.Option(metavar="N,...", help="Else each model's own: 1 and 8 for most.")] = "",
    peers: Annotated[str, typer.Option(metavar="PEER,...", help="Else all but torch-frozen.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Processes for each peer.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.01, help="Measuring time of each process, in several turns.")] = 3.0,
    policy: Annotated[str, typer.Option(help="measure, stored, heuristic or always.")] = "measure",
    tune: Annotated[float, typer.Option(min=0, help="Seconds for measuring kernels before the first round.")] = 30.0,
    small: Annotated[bool, typer.Option("--small", help="Tiny models, to see that everything runs.")] = False,
    output: Output = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Measure whole models: stock, dispatched, XLA's oneDNN flags, torch.compile, OpenVINO, a process each."""
    from hlo_dispatch.bench.models import campaign, view
    from hlo_dispatch.bench.models.catalogue import DEFAULT_PEERS, MODELS, PEERS, jobs
    from hlo_dispatch.bench.result_files import Results, default_path
    from hlo_dispatch.report.terminal import console

    chosen = jobs(tuple(models), _words(dtype), tuple(_number(word) for word in _words(batch)))
    asked = _known(_words(peers) or DEFAULT_PEERS, tuple(PEERS), "peer")
    kind = "small-models" if small else "models"
    results = Results.open(output or default_path(kind), kind)
    with _Interruption() as interrupted:
        for model in dict.fromkeys(job.model for job in chosen):
            campaign.run(
                [job for job in chosen if job.model == model],
                results,
                peers=asked,
                rounds=rounds,
                seconds=seconds,
                policy=policy,
                tuning=tune,
                options=dict(MODELS[model].small) if small else {},
                resume=resume,
                say=_say,
            )
    entries = [entry for job in chosen if (entry := results.get(job.name))]
    _finish(results, entries, as_json, lambda: view.print_models(console(), results.header, entries), interrupted)


@app.command("diffusion")
def bench_diffusion(
    steps: Annotated[int, typer.Option(min=1, help="Denoising steps of the real pipeline.")] = 2,
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE,...", help="f32, bf16.")] = "f32",
    narrow: Annotated[bool, typer.Option("--small", help="A narrow pipeline, to see that it runs.")] = False,
    output: Output = None,
) -> None:
    """Run the whole Stable Diffusion pipeline, stock and dispatched; say what an image takes, from measured parts."""
    from hlo_dispatch.bench.models import diffusion_view
    from hlo_dispatch.bench.models.catalogue import DTYPES
    from hlo_dispatch.bench.result_files import Results, default_path

    dtypes = _known(_words(dtype), DTYPES, "element type")
    results = Results.open(output or default_path("diffusion"), "diffusion")
    parts = default_path("models")
    diffusion_view.run(results, dtypes, steps, narrow=narrow, parts=Results.read(parts) if parts.exists() else None)


@app.command("generate")
def bench_generate(
    size: Annotated[str, typer.Option(help="tiny, small (0.29e9 parameters) or large (1.1e9).")] = "small",
    forms: Annotated[str, typer.Option(metavar="FORM,...", help="scan, carry, unrolled; else all.")] = "",
    ways: Annotated[
        str,
        typer.Option(
            metavar="WAY,...",
            help="stock, jit, frozen, frozen-bf16, frozen-int8, frozen-int4, the last two with -int8 behind them for "
            "activations, loaded-int8 and loaded-int4 (from a file), and the peers llama.cpp and OpenVINO; else all.",
        ),
    ] = "",
    dtype: Annotated[str, typer.Option(help="f32 or bf16; else f32 where weights are frozen, and bf16.")] = "",
    capacity: Annotated[str, typer.Option(metavar="N,...", help="Tokens that a cache holds; a second one.")] = "640",
    positions: Annotated[str, typer.Option(metavar="N,...", help="Where a token is measured.")] = "128,512",
    batch: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 1,
    turns: Annotated[int, typer.Option(min=1, help="Each is measured so often.")] = 4,
    policy: Annotated[str, typer.Option(help="measure, stored, heuristic or always.")] = "measure",
    profile: Annotated[bool, typer.Option("--profile", help="Also a token's time by kind of instruction.")] = False,
    output: Output = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Measure a language model's prefill and decoding: loops over layers in three forms, jitted, frozen, and peers."""
    from hlo_dispatch.bench.generate import campaign, view
    from hlo_dispatch.bench.generate.decoder import FORMS
    from hlo_dispatch.bench.generate.peers import PEERS
    from hlo_dispatch.bench.generate.plan import WAYS, GenerationPlan
    from hlo_dispatch.bench.generate.weights import SIZES
    from hlo_dispatch.bench.result_files import Results, default_path
    from hlo_dispatch.report.terminal import console

    every = (*WAYS, *PEERS)
    _known((size,), tuple(SIZES), "size")
    plan = GenerationPlan(
        size=size,
        forms=_known(_words(forms) or FORMS, FORMS, "form"),
        ways=_known(_words(ways) or every, every, "way"),
        dtype="".join(_known(_words(dtype), ("f32", "bf16"), "element type")),
        capacities=[_number(word) for word in _words(capacity)],
        positions=[_number(word) for word in _words(positions)],
        batch=batch,
        policy=policy,
        turns=turns,
        is_profiled=profile,
    )
    results = Results.open(output or default_path("generation"), "generation")
    done = {entry["name"] for entry in results if "cut" not in entry} if resume else ()
    with _Interruption() as interrupted:
        for entry in campaign.run(plan, _say, done):
            results.put(entry)
    entries = [entry for name in plan.names for entry in [results.get(name)] if entry is not None]
    _finish(results, entries, as_json, lambda: view.print_generation(console(), entries), interrupted)


@app.command("accuracy")
def bench_accuracy(
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 400,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Train a small character model, and measure how fewer bits of weights and activations change its perplexity."""
    from hlo_dispatch.bench import accuracy
    from hlo_dispatch.bench.result_files import Results, default_path
    from hlo_dispatch.report.terminal import console

    results = Results.open(output or default_path("accuracy"), "accuracy")
    entries = list(accuracy.run(accuracy.AccuracyPlan(steps=steps), _say))
    for entry in entries:
        results.put(entry)
    _finish(results, entries, as_json, lambda: accuracy.print_accuracy(console(), entries))


@app.command("public")
def bench_public(
    kinds: Annotated[list[str], typer.Argument(metavar="[KIND]...", help="Such as integers; else all.")] = [],  # noqa: B006
    policy: Annotated[str, typer.Option(help="measure, stored, heuristic or always.")] = "measure",
    seconds: Annotated[float, typer.Option(min=0.01, help="Measuring time of each program.")] = 1.0,
    small: Annotated[bool, typer.Option("--small", help="Tiny sizes, to see that everything runs.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Measure kinds of programs that users of the field met; exit 1 if a result is wrong against float64."""
    from hlo_dispatch.bench import public
    from hlo_dispatch.bench.public_programs import KINDS
    from hlo_dispatch.bench.result_files import Results, default_path
    from hlo_dispatch.report.terminal import console

    chosen = _known(tuple(kinds) or tuple(KINDS), tuple(KINDS), "kind")
    results = Results.open(output or default_path("public"), "public")
    found = public.run(chosen, policy=policy, seconds=seconds, small=small, say=_say)
    _compare(results, found, as_json, lambda entries: public.print_public(console(), entries))


@app.command("everyday")
def bench_everyday(
    kinds: Annotated[list[str], typer.Argument(metavar="[KIND]...", help="Such as sorting; else all.")] = [],  # noqa: B006
    elements: Annotated[str, typer.Option(metavar="N,...", help="Numbers of elements.")] = "1000,100000,1000000",
    dtype: Annotated[str, typer.Option(metavar="TYPE,...", help="f32, f64, bf16.")] = "f32,f64",
    gradients: Annotated[bool, typer.Option("--gradients", help="Also each operation's gradient.")] = False,
    policy: Annotated[str, typer.Option(help="measure, stored, heuristic or always.")] = "measure",
    seconds: Annotated[float, typer.Option(min=0.01, help="Measuring time of each row.")] = 0.6,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Measure everyday operations against PyTorch and NumPy; exit 1 if a result is wrong against float64."""
    from hlo_dispatch.bench import everyday
    from hlo_dispatch.bench.everyday_programs import FLOATS, KINDS
    from hlo_dispatch.bench.result_files import Results, default_path
    from hlo_dispatch.report.terminal import console

    plan = everyday.EverydayPlan(
        kinds=_known(tuple(kinds) or KINDS, KINDS, "kind"),
        elements=[_number(word) for word in _words(elements)],
        dtypes=_known(tuple(_words(dtype)), FLOATS, "element type"),
        gradients=gradients,
        policy=policy,
        seconds=seconds,
    )
    results = Results.open(output or default_path("everyday"), "everyday")
    _compare(results, everyday.run(plan, _say), as_json, lambda entries: everyday.print_everyday(console(), entries))


Files = Annotated[
    list[Path], typer.Argument(metavar="[FILE]...", help="Files of results; else those of the cache folder.")
]


@app.command("report")
def bench_report(
    files: Files = [],  # noqa: B006
    output: Annotated[str, typer.Option("--output", "-o", metavar="OUT", help="The page.")] = "hlo-dispatch-bench.html",
    png: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Also each figure as a PNG.")] = None,
) -> None:
    """Write one page with everything that was measured: bars against peers, roofline, where time goes."""
    from hlo_dispatch.bench.report.gather import gather
    from hlo_dispatch.bench.report.page import write_report

    for name in write_report(gather(files), output, png):
        print(name)


@app.command("readme")
def bench_readme(
    files: Files = [],  # noqa: B006
    page: Annotated[Path, typer.Option(metavar="FILE", help="The page of results.")] = Path("bench/results/README.md"),
    readme: Annotated[Path, typer.Option(metavar="FILE", help="The page with ratios.")] = Path("README.md"),
    check: Annotated[bool, typer.Option("--check", help="Only say whether both are in step; exit 1 if not.")] = False,
) -> None:
    """Write the tables of results into the page of results, and the ratios into the README, between their marks."""
    from hlo_dispatch.bench.report.gather import gather
    from hlo_dispatch.bench.report.readme import with_ratios, with_tables
    from hlo_dispatch.ir import module_files

    gathered = gather(files)
    before = {path: path.read_text() for path in (page, readme)}
    after = {page: with_tables(before[page], gathered), readme: with_ratios(before[readme], gathered)}
    changed = [path for path in before if before[path] != after[path]]
    if check:
        for path in before:
            print(f"{path} is not in step: run this without --check" if path in changed else f"{path} is in step")
        raise typer.Exit(int(bool(changed)))
    for path in changed:
        module_files.write_atomically(str(path), after[path].encode())


def _compare(results: Any, found: Iterable[Any], as_json: bool, draw: Callable[[list[Any]], None]) -> None:
    """Measure the entries that a bench finds, print them, and exit 1 if a result is wrong."""
    entries: list[Any] = []
    with _Interruption() as interrupted:
        for entry in found:
            results.put(entry)
            entries.append(entry)
    _finish(results, entries, as_json, lambda: draw(entries), interrupted, resumes=False)
    if any(entry["verdict"] != "right" for entry in entries):
        raise typer.Exit(1)


class _Interruption:
    """Measuring that Ctrl-C or SIGTERM (a time limit's) ends early; then it is true, and what was measured is kept."""

    def __init__(self) -> None:
        self._happened = False

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        # None: one that Python did not set.
        signal.signal(signal.SIGTERM, self._handler or signal.SIG_DFL)
        self._happened = kind is KeyboardInterrupt
        return self._happened

    def __bool__(self) -> bool:
        return self._happened


def _finish(
    results: Any,
    entries: list[Any],
    as_json: bool,
    draw: Any,
    interrupted: _Interruption | None = None,
    *,
    resumes: bool = True,
) -> None:
    """Print the entries and the path of the samples; exit as interrupted where it was.

    Args:
        resumes: whether the command has --resume.
    """
    if as_json:
        print(json.dumps({"header": results.header, "results": entries}, indent=1))
    elif entries:
        draw()
    if len(results):
        print(f"every sample: {results.path}", file=sys.stderr)
    if interrupted:
        print(f"interrupted: what was measured is kept{'; --resume goes on' if resumes else ''}", file=sys.stderr)
        raise typer.Exit(130)


def _say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _known(asked: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
    from hlo_dispatch.bench.pattern import CaseError

    for name in asked:
        if name not in known:
            raise CaseError(f"unknown {what} {name!r}: one of {', '.join(known)}")
    return asked


def _number(word: str) -> int:
    from hlo_dispatch.bench.pattern import CaseError

    if not word.isdecimal() or int(word) < 1:
        raise CaseError(f"{word!r}: expected a whole number from 1 on")
    return int(word)
