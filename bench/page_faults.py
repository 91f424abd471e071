"""Page faults of programs with large buffers: stock XLA, dispatched without huge-page advice, and dispatched.

    python -m bench.page_faults [--programs resnet50-training unet] [--policy heuristic] [--seconds 20]

Each run of a program allocates its temporary buffer and its results anew. Prints, for each way, the least time, the
page faults of a run and the most memory that was resident, in interleaved turns in one process.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import hlo_dispatch
from hlo_dispatch.bench.generate import decoder
from hlo_dispatch.bench.generate.weights import SIZES, random_prompt
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.models.in_jax import build
from hlo_dispatch.bench.training_programs import gradient_descent
from hlo_dispatch.passes import huge_page_advice

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def _training(model: str, batch: int, size: int) -> Program:
    predict, (trainable, frozen, images) = build(model, "f32", batch, {"size": size})

    def loss(trainable: Any, frozen: Any, images: Any) -> Any:
        return -jnp.mean(jax.nn.log_softmax(predict(trainable, frozen, images))[:, 0])

    return gradient_descent(loss), (trainable, frozen, images)


def _prefill(size: str, form: str, dtype: str, tokens: int) -> Program:
    settings = SIZES[size]
    weights = decoder.parameters(settings, form, dtype)
    cache = decoder.empty_cache(settings, form, 1, tokens, dtype)
    prompt = jnp.asarray(random_prompt(settings, 1, tokens))
    return decoder.step(settings, form), (weights, cache, prompt, jnp.int32(0))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "resnet50-training": partial(_training, "resnet50", 8, 160),
    "resnet50-32": partial(build, "resnet50", "f32", 32, {}),
    "mobilenetv2-32": partial(build, "mobilenetv2", "f32", 32, {}),
    "unet": partial(build, "unet", "f32", 2, {}),
    "prefill-scan": partial(_prefill, "large", "scan", "bfloat16", 512),
    "prefill-unrolled": partial(_prefill, "large", "unrolled", "bfloat16", 512),
}
"""Each with its arguments."""
WAYS = ("stock", "unadvised", "advised")
FEWEST_ROUNDS = 3


@contextmanager
def _compiled_as(way: str, policy: str) -> Iterator[None]:
    least = huge_page_advice.LEAST_BYTES
    if way == "unadvised":
        huge_page_advice.LEAST_BYTES = 1 << 60
    try:
        with hlo_dispatch.enabled(policy="never" if way == "stock" else policy):
            yield
    finally:
        huge_page_advice.LEAST_BYTES = least


def _most_resident() -> float:
    """Megabytes since the count was begun."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


@dataclass(frozen=True)
class RunSample:
    """One run."""

    wall: float
    """Milliseconds, as the next two."""
    processor: float
    """Of all threads."""
    system: float
    """The part of it that the operating system took."""
    faults: int
    resident: float
    """Most megabytes."""


def _sample(run: Callable[[], Any]) -> RunSample:
    Path("/proc/self/clear_refs").write_text("5")  # the most that was resident is counted anew
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    jax.block_until_ready(run())
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    faults = after.ru_minflt - before.ru_minflt
    return RunSample(wall * 1e3, (user + system) * 1e3, system * 1e3, faults, _most_resident())


def measure(program: Program, ways: Sequence[str], policy: str, seconds: float) -> dict[str, RunSample]:
    """Of each way the least times, the middle number of faults and the most memory."""
    function, arguments = program
    runs: dict[str, Callable[[], Any]] = {}
    for way in ways:
        with _compiled_as(way, policy):
            compiled = jax.jit(lambda *given: function(*given)).lower(*arguments).compile()
        runs[way] = partial(compiled, *arguments)
    samples: dict[str, list[RunSample]] = {way: [] for way in ways}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(samples[ways[0]]) < FEWEST_ROUNDS:
        for way, run in runs.items():
            jax.block_until_ready(run())
            samples[way].append(_sample(run))
    return {way: _summary(found) for way, found in samples.items()}


def _summary(samples: list[RunSample]) -> RunSample:
    return RunSample(
        wall=min(sample.wall for sample in samples),
        processor=min(sample.processor for sample in samples),
        system=min(sample.system for sample in samples),
        faults=statistics.median_high(sample.faults for sample in samples),
        resident=max(sample.resident for sample in samples),
    )


def main() -> None:
    """Measure and print each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, metavar="WAY")
    parser.add_argument("--policy", default="heuristic")
    parser.add_argument("--seconds", type=float, default=20, help="measuring time of each program")
    given = parser.parse_args()
    print("\n".join(header()))
    for name in given.programs:
        for way, found in measure(PROGRAMS[name](), given.ways, given.policy, given.seconds).items():
            times = f"{found.wall:9.1f} ms {found.processor:9.1f} of processors {found.system:7.1f} of the system"
            print(f"{name:18} {way:10}{times} {found.faults:9,} faults {found.resident:7,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
