"""Overhead of one more small call in a call group: `python -m bench.in_sequence`.

A chain of equal products is one sequence. Its time with many members less its time with two, per member, is compared
with the same primitive called without XLA in the same chain, waited for each time: two buffers in turns, as what one
processor wrote the other one has to fetch. (What it takes to call it from Python is measured, and taken off.) And with
the same chain where each call stays one of its own. All in turns.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import rich
from rich.table import Table

import hlo_dispatch
from hlo_dispatch import _kernels
from hlo_dispatch.process.environment_switches import SEQUENCES_VARIABLE
from hlo_dispatch.vendor import registry

FEW, MANY = 2, 34
ROUNDS = 200
SIZES = ((1, 64), (16, 64), (49, 96), (196, 96))
"""Rows and columns: from a product that is nearly nothing to one of a small network's."""


def chain(weights: jax.Array, length: int) -> Callable[[jax.Array], jax.Array]:
    def program(x: jax.Array) -> jax.Array:
        for _ in range(length):
            x = jax.nn.relu(x @ weights)
        return x

    return program


def compiled(weights: jax.Array, x: jax.Array, length: int, sequences: str) -> tuple[Callable[[], object], dict]:
    """The chain, and the attributes of its calls."""
    os.environ[SEQUENCES_VARIABLE] = sequences
    with hlo_dispatch.enabled(policy="always"):
        executable = jax.jit(chain(weights, length)).lower(x).compile()
        region = hlo_dispatch.reports()[-1].dispatched[0]
    return lambda: jax.block_until_ready(executable(x)), {"kernel": region.kernel, **region.attributes}


def microseconds(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Medians, in turns."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) * 1e6 for name, taken in samples.items()}


def measured(rows: int, columns: int) -> tuple[float, float, float]:
    """Microseconds of one more call: in a call group, ungrouped in a program, without XLA."""
    random = np.random.default_rng(0)
    weights = jnp.asarray(random.standard_normal((columns, columns)) / columns**0.5, "float32")
    x = jnp.asarray(random.standard_normal((rows, columns)), "float32")
    functions: dict[str, Callable[[], object]] = {}
    said: dict = {}
    for name, sequences in (("grouped", "1"), ("ungrouped", "0")):
        for length in (FEW, MANY):
            functions[f"{name} {length}"], said = compiled(weights, x, length, sequences)
    target = registry.kernels()[said.pop("kernel")].target
    # Memory of JAX's, as the chains' is.
    there, back, factors = (jnp.array(array) + 0 for array in (x, x, weights))
    given = [(array.unsafe_buffer_pointer(), array.nbytes) for array in (there, factors, back)]
    calls = [_kernels.raw_call(target, said, buffers) for buffers in (given, given[::-1])]
    for name, times in (("raw", 1), ("empty", 0)):
        for length in (FEW, MANY):
            functions[f"{name} {length}"] = partial(in_turns, calls, length, times)
    found = microseconds(functions)
    more = MANY - FEW
    grouped, ungrouped, alone, empty = (
        (found[f"{name} {MANY}"] - found[f"{name} {FEW}"]) / more for name in ("grouped", "ungrouped", "raw", "empty")
    )
    return grouped, ungrouped, alone - empty


def in_turns(calls: list[object], length: int, times: int) -> None:
    """Run raw calls one after the other, so often each."""
    for number in range(length):
        _kernels.run_raw(calls[number % 2], times)


def main() -> None:
    """Print the table."""
    before = os.environ.get(SEQUENCES_VARIABLE)
    table = Table("rows x columns", "in a call group, µs", "ungrouped, µs", "without XLA, µs", "group over raw, µs")
    for rows, columns in SIZES:
        grouped, ungrouped, alone = measured(rows, columns)
        table.add_row(
            f"{rows} x {columns}", *(f"{value:.1f}" for value in (grouped, ungrouped, alone, grouped - alone))
        )
    os.environ.pop(SEQUENCES_VARIABLE)
    if before is not None:
        os.environ[SEQUENCES_VARIABLE] = before
    rich.print(table)


if __name__ == "__main__":
    main()
