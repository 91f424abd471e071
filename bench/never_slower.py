"""Is measured choice ever slower than stock, or a frozen model than an unfrozen one? All of it timed independently.

    python -m bench.never_slower tiny small regions training models frozen [--output FILE [--resume]] [--models NAME …]

Everything is compiled stock and with the policy "measure" (an empty store of its own), then timed in turns. A
model is timed twice dispatched: as its first compile leaves it (the default budget) and as later compiles do. A
frozen one is timed with stock and with what later compiles leave unfrozen; their results are compared, and processes
of their own say what memory each takes at most. A ratio below the limit is measured twice more with twice the time and
the middle one counts: on a shared machine one in fifty is off by more than that by itself. The limits are 0.98 of
stock's speed for a model, 0.98 of the unfrozen program's for a frozen one, with 1.1 times its memory where the weights
are donated (where the caller holds them the figure stands beside it), and 0.95 for a region or a small program
(batches of tiny matrices, recurrent cells in scans), 0.95 of the faster of stock and the policy "always" for a training
step of a small network; a tiny program has to be left as it is, and to be within 2 %. Each
model has a process of its own, which is stopped after --most-seconds.
Everything measured is in the JSON file after each program; --resume leaves out what it has. The exit status is 1 where
anything was slower.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from hlo_dispatch.bench import frozen
from hlo_dispatch.bench.comparing import compare
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.programs import BenchProgram, is_inference, model, random_regions, small, tiny
from hlo_dispatch.bench.record import ResultRecord
from hlo_dispatch.bench.verdict import KINDS, Result, summary

_MODELS = (
    "resnet50 mobilenetv2 efficientnetb0 convnexttiny densenet121 inceptionv3 xception bert-layer bert gpt2 vit t5 "
    "clip whisper-encoder unet-small resnet50-bf16 convnexttiny-bf16 bert-bf16 vit-bf16 whisper-encoder-bf16 "
    "mobilenetv2-gradient efficientnetb0-gradient resnet50-gradient bert-gradient unet"
).split()


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


def _in_a_process(kind: str, name: str, seconds: float, most_seconds: float) -> Result:
    command = [sys.executable, "-m", "hlo_dispatch.bench.never_slower", kind, "--one", name, "--seconds", str(seconds)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=most_seconds)
    except subprocess.TimeoutExpired:
        return Result(kind, name, problem=f"not done in {most_seconds:.0f} s", spent=most_seconds)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return Result(kind, name, problem=reason[0][:200], spent=time.perf_counter() - begin)
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def _compare_model(name: str, seconds: float) -> Result:
    return compare("models", model(name), seconds)


def _training() -> Iterator[BenchProgram]:
    from hlo_dispatch.bench.training_programs import training_steps  # it makes arrays of JAX's

    return training_steps()


def main() -> None:
    """Measure, print a line for each program and the sums, exit 1 where something was slower."""
    parser = argparse.ArgumentParser(prog="python -m bench.never_slower", description=(__doc__ or "").splitlines()[0])
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
            is_frozen = chosen.kinds == ["frozen"]
            result = (frozen.compare if is_frozen else _compare_model)(chosen.one, chosen.seconds)
        print(json.dumps(asdict(result)))
        return
    print("\n".join(header()), flush=True)
    record = ResultRecord(chosen.output, resume=chosen.resume)
    begin = time.perf_counter()
    for kind in chosen.kinds or KINDS:
        _measure(kind, chosen, record)
    for kind in KINDS:
        if record.of(kind):
            print(summary(kind, record.of(kind)))
    print(f"{time.perf_counter() - begin:.0f} s")
    raise SystemExit(any(not result.is_good and not result.problem for result in record.results.values()))


def _measure(kind: str, chosen: argparse.Namespace, record: ResultRecord) -> None:
    if kind in ("models", "frozen"):
        for name in chosen.models:
            if (kind, name) not in record and (kind == "models" or is_inference(name)):
                record.add(_in_a_process(kind, name, chosen.seconds, chosen.most_seconds))
        return
    programs = {"tiny": tiny, "small": small, "training": _training}.get(
        kind, lambda: random_regions(chosen.regions, chosen.seed)
    )()
    for program in programs:
        if (kind, program.name) not in record:
            with _empty_store():
                record.add(compare(kind, program, chosen.seconds / (3 if kind == "tiny" else 10)))


if __name__ == "__main__":
    main()
