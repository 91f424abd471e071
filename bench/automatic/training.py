"""Loops of training under `hlo_dispatch.jit` beside `jax.jit`, both under the pass: time of a step, and memory.

    python -m bench.automatic.training [--seconds 20] [--only NAME …]

Every step's parameters are new objects, so nothing is to gain, and the call is to cost what `jax.jit`'s does. Both
loops take turns of many steps, each on its own state. Prints the median and the least time of a step, the median of the
turns' ratios, processor time over `jax.jit`'s, and how much memory the process has more at the end than after a third.
"""

# pyright: basic, reportMissingImports=false
# jax has no complete type hints, and optax is not there everywhere.
from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import nn

import hlo_dispatch
from hlo_dispatch.bench import training
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.models.process import status

_BATCHES = 4
_TURN = 0.1
"""Seconds of a turn of one loop, about."""
Loop = Callable[[Any, Any, Any], Any]


def _network(name: str) -> tuple[Loop, Any, list[Any]]:
    network, parameters = training.networks()[name]
    labels = nn.one_hot(jnp.arange(8), 10)
    return training.step(network), parameters, [(training.weights(8, 64, 64, 3), labels) for _ in range(_BATCHES)]


def _optax(layers: int, width: int, rows: int) -> tuple[Loop, Any, list[Any]]:
    import optax

    rule = optax.adam(1e-4)
    parameters = {f"layer_{n}": {"w": training.weights(width, width), "b": jnp.zeros(width)} for n in range(layers)}

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        for layer in parameters.values():
            x = x + nn.tanh(x @ layer["w"] + layer["b"])
        return jnp.mean((x - y) ** 2)

    def step(state: Any, x: Any, y: Any) -> Any:
        parameters, moments = state
        updates, moments = rule.update(jax.grad(loss)(parameters, x, y), moments, parameters)
        return optax.apply_updates(parameters, updates), moments

    batches = [(training.weights(rows, width), training.weights(rows, width)) for _ in range(_BATCHES)]
    return step, (parameters, rule.init(parameters)), batches


LOOPS: dict[str, tuple[Callable[[], tuple[Loop, Any, list[Any]]], dict[str, Any], int]] = {
    "residual": (lambda: _network("residual"), {}, _BATCHES),
    "depthwise-separable": (lambda: _network("depthwise-separable"), {}, _BATCHES),
    "residual, one batch": (lambda: _network("residual"), {}, 1),
    "optax adam, 2 x 512": (lambda: _optax(2, 512, 128), {}, _BATCHES),
    "optax adam, 50 x 32": (lambda: _optax(50, 32, 32), {}, _BATCHES),
    "optax adam, 50 x 32, donated": (lambda: _optax(50, 32, 32), {"donate_argnums": 0}, _BATCHES),
    "optax adam, 2 x 512, one batch": (lambda: _optax(2, 512, 512), {}, 1),
}
"""The step with its state and batches, options of jit, and how many of the batches take turns."""


class _Training:
    """One loop and its state."""

    def __init__(self, step: Callable[..., Any], state: Any, batches: list[Any]) -> None:
        self._step, self._state = step, jax.tree.map(jnp.array, state)
        self._batches = itertools.cycle(batches)

    def run(self, steps: int) -> tuple[float, float]:
        """Seconds and processor seconds of a step."""
        begin, busy = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self._state = self._step(self._state, *next(self._batches))
        jax.block_until_ready(self._state)
        return (time.perf_counter() - begin) / steps, (time.process_time() - busy) / steps

    @property
    def state(self) -> Any:
        """The trained state."""
        return self._state


def measured(name: str, seconds: float) -> str:
    """A sentence on one loop."""
    make, options, count = LOOPS[name]
    step, state, batches = make()
    automatic = hlo_dispatch.jit(step, **options)
    loops = {"jit": _Training(jax.jit(step, **options), state, batches[:count])}
    loops["automatic"] = _Training(automatic, state, batches[:count])
    steps = max(1, round(_TURN / min(loop.run(8)[0] for _ in range(2) for loop in loops.values())))
    for loop in loops.values():
        loop.run(max(64, steps))  # it may prepare something, and compare
    walls: dict[str, list[float]] = {way: [] for way in loops}
    busy: dict[str, list[float]] = {way: [] for way in loops}
    end, memory = time.monotonic() + seconds, []
    for turn in itertools.count():
        for way in list(loops)[:: 1 if turn % 2 else -1]:
            wall, processor = loops[way].run(steps)
            walls[way].append(wall)
            busy[way].append(processor)
        gc.collect()
        memory.append(status("VmRSS"))
        if time.monotonic() > end and turn >= 5:
            break
    ratios = [a / b for a, b in zip(walls["automatic"], walls["jit"], strict=True)]
    processor = statistics.median(busy["automatic"]) / statistics.median(busy["jit"])
    pairs = zip(jax.tree.leaves(loops["jit"].state), jax.tree.leaves(loops["automatic"].state), strict=True)
    difference = max(float(jnp.abs(a - b).max()) for a, b in pairs)
    times = ", ".join(
        f"{way} {statistics.median(took) * 1e6:.0f} (least {min(took) * 1e6:.0f})" for way, took in walls.items()
    )
    least = min(walls["automatic"]) / min(walls["jit"])
    more = (memory[-1] - memory[len(memory) // 3]) / 1e6
    return (
        f"{name}: µs of a step: {times}; ratio {statistics.median(ratios):.4f}, of the least {least:.4f}, of processor "
        f"time {processor:.4f}; memory {more:+.1f} MB; difference {difference:.1e}; {'; '.join(automatic.report)}"
    )


def results(names: list[str], seconds: float) -> Iterator[str]:
    """A sentence on each loop whose framework is installed."""
    for name in names:
        with contextlib.suppress(ImportError):
            yield measured(name, seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="measuring time of each loop")
    parser.add_argument("--only", nargs="*", default=list(LOOPS), choices=LOOPS, metavar="NAME")
    options = parser.parse_args()
    print("\n".join(header()))
    with hlo_dispatch.enabled():
        for sentence in results(options.only, options.seconds):
            print(sentence, flush=True)


if __name__ == "__main__":
    main()
