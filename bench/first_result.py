"""Seconds from the start of a process to a model's first result: `python -m bench.first_result [MODEL]...`.

A model that was frozen and saved is loaded where neither flax nor keras can be imported, against the same model built,
traced and compiled. Each way has a process of its own, they take turns; with `--cache` once more with JAX's compilation
cache, filled before. Behind each time stand the seconds that processors worked for it, of all threads: they are nearly
the same on a busy machine. Nothing is measured on the way: kernels are chosen by the heuristic.
"""

# pyright: basic, reportCallIssue=false, reportArgumentType=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich
from rich.table import Table

from hlo_dispatch.bench.header import header

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("resnet50", "bert")
WITHOUT = ("flax", "keras", "transformers")
"""What a model's code needs, and a loaded program does not."""
WAYS = {"stock": "traced and compiled by stock XLA", "frozen": "traced, compiled and frozen", "loaded": "loaded"}
CACHED = {False: "", True: ", from the cache"}


@dataclass(frozen=True)
class Start:
    """One model in one configuration."""

    model: str
    dtype: str
    small: bool

    def build(self) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
        """Its function, its weights, its other arguments."""
        from hlo_dispatch.bench.models import in_jax
        from hlo_dispatch.bench.models.catalogue import MODELS as known

        options = dict(known[self.model].small) if self.small else {}
        function, arguments = in_jax.build(self.model, self.dtype, 1, options)
        count = in_jax.leading_weights(self.model)
        return function, arguments[:count], arguments[count:]


def main() -> None:
    """Measure and print; `--way` is how the command calls itself."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_result", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--small", action="store_true", help="tiny ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", action="store_true", help="also with JAX's compilation cache")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    wanted = [Start(model, given.dtype, given.small) for model in given.models]
    if given.way:
        print(json.dumps(run_way(given.way, wanted[0], given.folder, given.begin)))
        return
    print("\n".join(header()))
    for one in wanted:
        with tempfile.TemporaryDirectory(prefix="hlo_dispatch_first_") as folder:
            rich.print(measured(one, Path(folder), given.rounds, cache=given.cache))


def measured(wanted: Start, folder: Path, rounds: int, *, cache: bool) -> Table:
    """A row for each way: medians over the rounds."""
    save = started("save", wanted, folder, cached=False)
    size = (folder / "model.frozen").stat().st_size
    samples: dict[tuple[str, bool], list[dict[str, float]]] = {
        (way, cached): [] for way in WAYS for cached in ((False, True) if cache else (False,))
    }
    for way, cached in samples:
        if cached:
            started(way, wanted, folder, cached=True)
    for _ in range(rounds):
        for way, cached in samples:
            samples[way, cached].append(started(way, wanted, folder, cached=cached))
    title = f"{wanted.model} {wanted.dtype}, seconds; saved in {save['save']:.1f} s, {size / 1e6:.0f} MB"
    table = Table("", "imports, and the model", "then to its first result", "together", title=title)
    for (way, cached), taken in samples.items():
        shown = []
        for part in ("ready", "first", "whole"):
            wall, worked = (statistics.median(one[name] for one in taken) for name in (part, f"{part} worked"))
            shown.append(f"{wall:.1f} ({worked:.1f})")
        table.add_row(WAYS[way] + CACHED[cached], *shown)
    return table


def started(way: str, wanted: Start, folder: Path, *, cached: bool) -> dict[str, float]:
    """Output of a process that runs one way from start to end."""
    environment = dict(os.environ) | {"KERAS_BACKEND": "jax"}
    for name in ("JAX_COMPILATION_CACHE_DIR", "HLO_DISPATCH"):
        environment.pop(name, None)
    if cached:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(folder / f"cache-{way}"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
    words = [wanted.model, "--dtype", wanted.dtype, *(["--small"] if wanted.small else [])]
    command = [sys.executable, "-m", "hlo_dispatch.bench.first_result", *words, "--way", way, "--folder", str(folder)]
    begin = time.time()
    done = subprocess.run(
        [*command, "--begin", repr(begin)], env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def run_way(way: str, wanted: Start, folder: Path, begin: float) -> dict[str, float]:
    """Go one way in this process; seconds since it was started."""
    if way == "loaded":
        sys.modules.update(dict.fromkeys(WITHOUT))  # importing them is an error from now on
    import jax
    import numpy

    import hlo_dispatch

    if way == "loaded":
        with numpy.load(folder / "inputs.npz") as kept:
            inputs = tuple(kept[name] for name in kept.files)
        ready = Moment.now()
        fast = hlo_dispatch.load(folder / "model.frozen")
        result = jax.block_until_ready(fast(*inputs))
        end = Moment.now()
        assert not any(sys.modules[name] for name in WITHOUT)
        check(result, folder, exactly=True)
        return parts(begin, ready, end)
    function, weights, inputs = wanted.build()
    jax.block_until_ready((weights, inputs))
    ready = Moment.now()
    if way == "stock":
        result = jax.block_until_ready(jax.jit(function)(*weights, *inputs))
        end = Moment.now()
        check(result, folder, exactly=False)
        return parts(begin, ready, end)
    with hlo_dispatch.enabled(policy="heuristic"):
        fast = hlo_dispatch.freeze(function, *weights)
        result = jax.block_until_ready(fast(*inputs))
        end = Moment.now()
    if way == "frozen":
        check(result, folder, exactly=True)
        return parts(begin, ready, end)
    fast.save(folder / "model.frozen")
    saved = Moment.now()
    numpy.savez(folder / "inputs.npz", *inputs)
    numpy.savez(folder / "results.npz", *jax.tree.leaves(result))
    return {"save": saved.clock - end.clock}


@dataclass(frozen=True)
class Moment:
    """Time stamp of one step."""

    clock: float
    worked: float
    """Seconds of all processors, in this process."""

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), time.process_time())


def parts(begin: float, ready: Moment, end: Moment) -> dict[str, float]:
    """From the start of the process to where the model is there, from there to its first result, and both."""
    clock = {"ready": ready.clock - begin, "first": end.clock - ready.clock, "whole": end.clock - begin}
    worked = {"ready": ready.worked, "first": end.worked - ready.worked, "whole": end.worked}
    return clock | {f"{part} worked": seconds for part, seconds in worked.items()}


def check(result: Any, folder: Path, *, exactly: bool) -> None:
    """See whether a result is the one that was saved: to the bit, or but for rounding."""
    import jax
    import numpy

    with numpy.load(folder / "results.npz") as kept:
        for name, leaf in zip(kept.files, jax.tree.leaves(result), strict=True):
            off = numpy.abs(numpy.asarray(leaf, "float64") - kept[name]).max()
            assert off <= (0 if exactly else 1e-2 * numpy.abs(kept[name]).max()), off


if __name__ == "__main__":
    main()
