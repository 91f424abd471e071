"""Is measured choice ever slower than stock? Models, random single regions and tiny programs, timed independently.

    python -m bench.never_slower tiny regions models [--output FILE [--resume]] [--regions 200] [--models NAME …]

Everything is compiled stock and with the policy "measure" (an empty store of its own), then timed in turns. A
model is timed twice dispatched: as its first compile leaves it (the default budget) and as later compiles do. A
ratio below the limit is measured twice more with twice the time and the middle one counts: on a shared machine one
in fifty is off by more than that by itself. The limits are 0.98 of stock's speed for a model and 0.95 for a region; a
tiny program has to be left as it is, and to be within 2 %. Each model has a process of its own, which is
stopped after --most-seconds. Everything measured is in the JSON file after each program; --resume leaves out what
it has. The exit status is 1 where anything was slower.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hlo_dispatch.demo.timing import interleaved

from .header import header
from .programs import Program, model, random_regions, tiny

KINDS = ("tiny", "regions", "models")
LIMITS = {"models": 0.98, "regions": 0.95, "tiny": 0.98}
NO_LIMIT = "3600"
"""Seconds of measuring, where it shall not end early."""
LONG_CALL = 0.3
"""Seconds; what lasts so long is called once a turn."""
FEW_TURNS = 5
STOCK, FIRST, SETTLED = "stock", "first compile", "later compiles"
_MODELS = (
    "resnet50 mobilenetv2 efficientnetb0 convnexttiny densenet121 inceptionv3 xception bert-layer bert gpt2 vit t5 "
    "clip whisper-encoder unet-small resnet50-bf16 convnexttiny-bf16 bert-bf16 vit-bf16 whisper-encoder-bf16 "
    "mobilenetv2-gradient efficientnetb0-gradient resnet50-gradient bert-gradient unet"
).split()


@dataclass
class Result:
    """One program, stock against dispatched."""

    kind: str
    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    """"stock", "first compile" (of a model), "later compiles" → median seconds of a call."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Stock's time over that of each other way, in the same turns."""
    calls: dict[str, int] = field(default_factory=dict)
    """Kernel calls in each dispatched program."""
    compile_more: float = 0.0
    """Seconds that the first dispatched compile took longer than stock's."""
    is_unchanged: bool = False
    """Whether every compiled program is, letter by letter, stock XLA's."""
    spent: float = 0.0
    """Seconds that all of this took."""
    problem: str = ""
    """Why there is no answer."""

    @property
    def verdict(self) -> str:
        """`ok`, `unchanged`, `SLOWER`, `CHANGED`, `OTHER TIME` (of a tiny one), or `none: …`."""
        if self.problem:
            return f"none: {self.problem}"
        limit = LIMITS[self.kind]
        if self.kind == "tiny":
            if not self.is_unchanged:
                return "CHANGED"
            return "unchanged" if all(limit <= r <= 2 - limit for r in self.ratios.values()) else "OTHER TIME"
        if not any(self.calls.values()):
            return "unchanged"
        return "SLOWER" if self.worst < limit else "ok"

    @property
    def is_good(self) -> bool:
        return self.verdict in ("ok", "unchanged")

    @property
    def worst(self) -> float:
        """The lowest ratio of a way that has kernel calls: without one it is stock XLA, and differs by noise."""
        return min(ratio for way, ratio in self.ratios.items() if self.calls[way])

    @property
    def gain(self) -> float:
        """Seconds that a call is shorter in the end."""
        return self.seconds[STOCK] - self.seconds[SETTLED] if self.calls.get(SETTLED) else 0.0


def compare(kind: str, program: Program, seconds: float) -> Result:
    """Compile and time one program in each way, `seconds` long."""
    import hlo_dispatch

    begin = time.perf_counter()
    result = Result(kind, program.name)
    executables: dict[str, Any] = {}
    took: dict[str, float] = {}
    for way in (STOCK, FIRST, SETTLED) if kind == "models" else (STOCK, SETTLED):
        if way == SETTLED:
            os.environ["HLO_DISPATCH_MEASURE_SECONDS"] = NO_LIMIT
        with contextlib.nullcontext() if way == STOCK else hlo_dispatch.enabled(policy="measure"):
            # From one line for all of them: a compiled program says where it was compiled from.
            executables[way], took[way] = _compiled(program)
    result.compile_more = took[FIRST if FIRST in took else SETTLED] - took[STOCK]
    texts = {way: executable.as_text() for way, executable in executables.items()}
    result.calls = {way: _kernel_calls(text) for way, text in texts.items() if way != STOCK}
    result.is_unchanged = len(set(texts.values())) == 1
    runs = [_times(executables, program.arguments, seconds)]
    limit = LIMITS[kind]
    for way in result.calls:
        # Equal programs are not timed again: what differs is the machine. Of tiny ones just this is to be shown.
        ratio = _ratio(runs[0], way)
        if (result.calls[way] and ratio < limit) or (kind == "tiny" and not limit <= ratio <= 2 - limit):
            again = [way, STOCK]
            more = [_times({w: executables[w] for w in again}, program.arguments, 2 * seconds) for _ in range(2)]
            middle = sorted([runs[0], *more], key=lambda run: _ratio(run, way))[1]
            result.seconds[way], result.ratios[way] = middle[way], _ratio(middle, way)
        else:
            result.seconds[way], result.ratios[way] = runs[0][way], _ratio(runs[0], way)
    result.seconds[STOCK] = runs[0][STOCK]
    result.spent = time.perf_counter() - begin
    return result


def _compiled(program: Program) -> tuple[Any, float]:
    import jax

    lowered = jax.jit(lambda *arguments: program.function(*arguments)).lower(*program.arguments)
    begin = time.perf_counter()
    return lowered.compile(), time.perf_counter() - begin


def _kernel_calls(text: str) -> int:
    return text.count('custom_call_target="hlo_dispatch.')


def _times(executables: dict[str, Any], arguments: tuple, seconds: float) -> dict[str, float]:
    """Way → median seconds of a call."""
    import jax

    def call(executable: Any) -> Callable[[], object]:
        return lambda: jax.block_until_ready(executable(*arguments))

    ways = {way: call(executable) for way, executable in executables.items()}
    first = next(iter(ways.values()))
    first()
    begin = time.perf_counter()
    first()
    if time.perf_counter() - begin < LONG_CALL:
        return {way: timing.median for way, timing in interleaved(ways, seconds=seconds).items()}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(FEW_TURNS):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            ways[way]()
            samples[way].append(time.perf_counter() - begin)
    return {way: statistics.median(values) for way, values in samples.items()}


def _ratio(run: dict[str, float], way: str) -> float:
    return run[STOCK] / run[way]


class Record:
    """Everything measured so far, kept in a file after each program."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        self._path = path
        self.results: dict[tuple[str, str], Result] = {}
        if path is not None and resume and path.exists():
            kept = json.loads(path.read_text())
            if kept["versions"] != _versions():
                raise SystemExit(f"{path} was measured with {kept['versions']}, not {_versions()}: choose another file")
            for values in kept["results"]:
                values.pop("verdict")
                self._keep(Result(**values))

    def __contains__(self, program: tuple[str, str]) -> bool:
        return program in self.results

    def add(self, result: Result) -> None:
        """Keep and show it."""
        self._keep(result)
        print(_line(result), flush=True)
        if self._path is not None:
            results = [asdict(r) | {"verdict": r.verdict} for r in self.results.values()]
            text = json.dumps({"versions": _versions(), "machine": header(), "results": results}, indent=1)
            temporary = self._path.with_name(f".{self._path.name}.writing")
            temporary.write_text(text + "\n")
            os.replace(temporary, self._path)

    def _keep(self, result: Result) -> None:
        self.results[result.kind, result.name] = result

    def of(self, kind: str) -> list[Result]:
        return [result for result in self.results.values() if result.kind == kind]


def _versions() -> str:
    from importlib import metadata

    return f"jax {metadata.version('jax')}, Python {platform.python_version()}"


def _line(result: Result) -> str:
    if result.problem:
        return f"{result.kind:8}{result.name:52} {result.verdict}"
    times = " ".join(f"{way}: {ratio:.3f}x, {result.calls[way]} calls;" for way, ratio in result.ratios.items())
    return (
        f"{result.kind:8}{result.name:52} {result.seconds[STOCK] * 1e3:10.3f} ms {times} "
        f"compile +{result.compile_more:.1f} s; {result.verdict} ({result.spent:.0f} s)"
    )


def summary(kind: str, results: list[Result]) -> str:
    """How many were faster, and by how much; the worst one."""
    known = [result for result in results if not result.problem]
    own = [result for result in known if any(result.calls.values())]
    bad = [result.name for result in known if not result.is_good]
    text = f"{kind}: {len(own)} of {len(known)} dispatched"
    if own:
        worst = min(own, key=lambda result: result.worst)
        gain, stock = sum(r.gain for r in own), sum(r.seconds[STOCK] for r in known)
        text += f"; worst {worst.worst:.3f}x ({worst.name})"
        text += f"; {gain * 1e3:.1f} ms of {stock * 1e3:.1f} ms saved"
    text += f"; below the limit of {LIMITS[kind]}: {len(bad)}" + (f" ({', '.join(bad)})" if bad else "")
    unknown = [result.name for result in results if result.problem]
    return text + (f"; not measured: {', '.join(unknown)}" if unknown else "")


@contextlib.contextmanager
def _empty_store() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.copy()
        os.environ["HLO_DISPATCH_CACHE_DIR"] = folder
        os.environ.pop("HLO_DISPATCH_MEASURE_SECONDS", None)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _model_in_a_process(name: str, seconds: float, most_seconds: float) -> Result:
    command = [sys.executable, "-m", "bench.never_slower", "models", "--one", name, "--seconds", str(seconds)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=most_seconds)
    except subprocess.TimeoutExpired:
        return Result("models", name, problem=f"not done in {most_seconds:.0f} s", spent=most_seconds)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return Result("models", name, problem=reason[0][:200], spent=time.perf_counter() - begin)
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure, print a line for each program and the sums, exit 1 where something was slower."""
    parser = argparse.ArgumentParser(prog="python -m bench.never_slower", description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all of them if none is named")
    parser.add_argument("--models", nargs="*", default=_MODELS, metavar="NAME")
    parser.add_argument("--regions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing: a model; regions a tenth")
    parser.add_argument("--most-seconds", type=float, default=600.0, help="for one model, everything included")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON, written after each program")
    parser.add_argument("--resume", action="store_true", help="leave out what the file has")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = set(chosen.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kind {min(unknown)!r}; known: {', '.join(KINDS)}")
    if chosen.one:
        with _empty_store():
            print(json.dumps(asdict(compare("models", model(chosen.one), chosen.seconds))))
        return
    print("\n".join(header()), flush=True)
    record = Record(chosen.output, resume=chosen.resume)
    begin = time.perf_counter()
    for kind in chosen.kinds or KINDS:
        _measure(kind, chosen, record)
    for kind in KINDS:
        if record.of(kind):
            print(summary(kind, record.of(kind)))
    print(f"{time.perf_counter() - begin:.0f} s")
    raise SystemExit(any(not result.is_good and not result.problem for result in record.results.values()))


def _measure(kind: str, chosen: argparse.Namespace, record: Record) -> None:
    if kind == "models":
        for name in chosen.models:
            if (kind, name) not in record:
                record.add(_model_in_a_process(name, chosen.seconds, chosen.most_seconds))
        return
    programs = random_regions(chosen.regions, chosen.seed) if kind == "regions" else tiny()
    for program in programs:
        if (kind, program.name) not in record:
            with _empty_store():
                record.add(compare(kind, program, chosen.seconds / (10 if kind == "regions" else 3)))


if __name__ == "__main__":
    main()
