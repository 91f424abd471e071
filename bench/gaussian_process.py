"""Gaussian process fit, end to end: stock XLA against measured selection, whole runs in turns.

    python -m bench.gaussian_process [--points 2000] [--steps 200] [--turns 2] [--dtype float32] [--policy measure]

The optimiser's steps are one program (dispatch/hlo_dispatch/demo/gaussian_process.py). Prints the seconds of a run, the
ratio of their medians, what compiling took, and how far the last losses differ.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import statistics
import time

import jax

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo import gaussian_process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turns", type=int, default=2, help="runs of each")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--policy", default="measure")
    chosen = parser.parse_args()
    jax.config.update("jax_enable_x64", chosen.dtype == "float64")
    print("\n".join(header()))
    train, inputs = gaussian_process.training(points=chosen.points, steps=chosen.steps, dtype=chosen.dtype)
    inputs = jax.device_put(inputs)
    programs, samples, losses = {}, {"stock": [], "dispatched": []}, {}
    for name in samples:
        jitted = jax.jit(lambda *arguments: train(*arguments))
        begin = time.perf_counter()
        if name == "stock":
            programs[name] = jitted.lower(*inputs).compile()
        else:
            with hlo_dispatch.enabled(policy=chosen.policy):
                programs[name] = jitted.lower(*inputs).compile()
        print(f"{name}: compiled in {time.perf_counter() - begin:.1f} s", flush=True)
    for turn in range(chosen.turns):
        for name in list(programs)[:: 1 if turn % 2 == 0 else -1]:
            begin = time.perf_counter()
            _, result = jax.block_until_ready(programs[name](*inputs))
            samples[name].append(time.perf_counter() - begin)
            losses[name] = float(result[-1])
            print(f"{name}: {samples[name][-1]:.2f} s", flush=True)
    stock, dispatched = (statistics.median(samples[name]) for name in samples)
    difference = abs(losses["stock"] - losses["dispatched"]) / abs(losses["stock"])
    print(f"{chosen.points} points, {chosen.steps} steps: {stock / dispatched:.2f}x")
    print(f"the last losses differ by {difference:.1e}")


if __name__ == "__main__":
    main()
