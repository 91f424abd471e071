"""Linear algebra and Fourier transforms: stock XLA against each library, routine by routine and size by size.

    python -m bench.linear_algebra [NAME ...] [--seconds 0.3] [--dtype float32] [--process]
                                   [--choices heuristic]

NAMEs are the beginnings of the rows' names. Every row is stock's milliseconds, then how many times faster the
cost model's choice is, and our own code, oneMKL and SciPy's LAPACK where each is forced; all are compiled in one
process and timed in turns. `--process` adds a step of Gaussian process regression (2000 points, value and gradient).
The cost model's constants (dispatch/hlo_dispatch/selection/linear_algebra_cost_model.py) are read off this table.
"""

# pyright: basic, reportAttributeAccessIssue=false, reportOperatorIssue=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo import gaussian_process
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.selection import family_cost_models

SIZES = (256, 1000, 1024, 2000, 2048)
SETTLE = 0.1
"""Seconds; until the threads of the library that ran before have gone to sleep."""
CHOICES = ("heuristic", "blocked", "onemkl", "scipy")

Case = tuple[str, Callable, tuple[np.ndarray, ...]]


def cases(dtype: str) -> Iterator[Case]:
    """(name, program, inputs) of every row."""
    random = np.random.default_rng(0)

    def general(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(dtype)

    def positive(*shape: int) -> np.ndarray:
        value = general(*shape)
        return value @ np.swapaxes(value, -1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)

    def lower_solve(a, b):
        return jsl.solve_triangular(a, b, lower=True)

    def cho_solve(a, b):
        return jsl.cho_solve(jsl.cho_factor(a, lower=True), b)

    for size in SIZES:
        a, b = positive(size, size), general(size, size)
        yield f"cholesky {size}", jnp.linalg.cholesky, (a,)
        yield f"cho_factor {size}", lambda a: jsl.cho_factor(a, lower=True)[0], (a,)
        yield f"solve_triangular {size} x {size}", lower_solve, (np.linalg.cholesky(a), b)
        yield f"solve_triangular {size} x 1", lower_solve, (np.linalg.cholesky(a), b[:, 0])
        yield f"solve {size} x 1", jnp.linalg.solve, (a, b[:, 0])
    for size in (256, 1000):
        a = general(size, size)
        yield f"inv {size}", jnp.linalg.inv, (a,)
        yield f"qr {size}", jnp.linalg.qr, (a,)
        yield f"eigh {size}", jnp.linalg.eigh, (a + a.T,)
        yield f"svd {size}", lambda a: jnp.linalg.svd(a, full_matrices=False), (a,)
    batch, sides = positive(1000, 32, 32), general(1000, 32, 1)
    yield "batch cholesky 1000 x 32 x 32", jnp.linalg.cholesky, (batch,)
    yield "batch solve 1000 x 32 x 32", jnp.linalg.solve, (batch, sides)
    yield "batch cho_solve 1000 x 32 x 32", cho_solve, (batch, sides)
    yield "batch solve_triangular 1000 x 32 x 32", lower_solve, (np.linalg.cholesky(batch), sides)
    yield "batch qr 1000 x 16 x 16", jnp.linalg.qr, (batch[:, :16, :16],)
    yield "batch eigh 1000 x 16 x 16", jnp.linalg.eigh, (batch[:, :16, :16],)
    yield "batch svd 1000 x 16 x 16", jnp.linalg.svd, (batch[:, :16, :16],)
    wide = general(1 << 20)
    wide = (wide + 1j * wide[::-1]).astype(np.result_type(dtype, np.complex64))
    square = wide.reshape(1024, 1024)
    yield "fft 1048576", jnp.fft.fft, (wide,)
    yield "fft 1000 x 1000", jnp.fft.fft, (wide[:1000000].reshape(1000, 1000),)
    yield "fft 1024 x 1024 along columns", lambda x: jnp.fft.fft(x, axis=0), (square,)
    yield "fft2 1024 x 1024", jnp.fft.fft2, (square,)
    yield "rfft2 1024 x 1024", jnp.fft.rfft2, (square.real,)


def regression_step(dtype: str, points: int = 2000) -> Case:
    """Value and gradient of a Gaussian process regression's negative log likelihood."""
    loss, inputs = gaussian_process.regression(points=points, dtype=dtype)
    return f"Gaussian process, {points} points", jax.value_and_grad(loss), inputs


def compiled(program: Callable, inputs: tuple, choice: str):
    """The program with the cost model, or with one library wherever it has a kernel."""
    jitted = jax.jit(lambda *arguments: program(*arguments))
    if choice == "stock":
        return jitted.lower(*inputs).compile()
    forced = mock.patch.multiple(
        family_cost_models,
        by_expected_speed=lambda match, _: sorted(match.kernels, key=lambda k: not k.startswith(choice)),
        is_worth_calling_library=lambda match, _: (match.kernel.startswith(choice), f"{choice} is forced"),
    )
    with hlo_dispatch.enabled(policy="heuristic"):
        if choice == "heuristic":
            return jitted.lower(*inputs).compile()
        with forced:
            return jitted.lower(*inputs).compile()


def row(case: Case, seconds: float, choices: Sequence[str]) -> str:
    """One line of the table; - where the choice leaves everything to XLA."""
    name, program, inputs = case
    inputs = jax.tree.map(jnp.asarray, inputs)
    programs = {choice: compiled(program, inputs, choice) for choice in ("stock", *choices)}
    used = {choice: f for choice, f in programs.items() if choice == "stock" or "hlo_dispatch." in f.as_text()}
    calls = {choice: lambda f=f: jax.block_until_ready(f(*inputs)) for choice, f in used.items()}
    timings = interleaved(calls, seconds=seconds, settle=SETTLE)
    stock = timings["stock"].median
    cells = [f"{stock / timings[choice].median:8.2f}x" if choice in used else "        -" for choice in choices]
    return f"{name:40} {stock * 1e3:9.3f} ms  " + "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row (default 0.3)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--choices", nargs="+", choices=CHOICES, default=CHOICES, help="only these columns")
    parser.add_argument("--process", action="store_true", help="add a step of Gaussian process regression")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", arguments.dtype == "float64")
    print("\n".join(header()))
    print(f"{arguments.dtype:40} {'stock':>12}  " + "  ".join(f"{choice:>9}" for choice in arguments.choices))
    for case in cases(arguments.dtype):
        everything = not arguments.names and not arguments.process
        if everything or case[0].startswith(tuple(arguments.names) or ("\0",)):
            print(row(case, arguments.seconds, arguments.choices), flush=True)
    if arguments.process:
        print(row(regression_step(arguments.dtype), max(arguments.seconds, 4), arguments.choices), flush=True)


if __name__ == "__main__":
    main()
