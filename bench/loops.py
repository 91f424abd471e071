"""Programs that live in loops: `python -m bench.loops [NAME...] [--policy always]`.

Diffusion's steps in a loop of JAX's, frozen, against the same frozen step in a loop of Python's; filters, integrators
and an automaton, whose bodies are too small for a library, against stock. In turns, in one process.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.report.terminal import console, make_table, row

STEPS = 20
"""Of diffusion."""
CHANNELS, LATENTS, HEADS = 128, 32, 4
_RANDOM = np.random.default_rng(0)
Calls = dict[str, Callable[[], object]]


def _array(*shape: int, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(_RANDOM.standard_normal(shape, "float32") * scale)


def _convolved(x: Any, w: Any, groups: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups)


def denoiser_weights() -> dict[str, Any]:
    """Two residual blocks around an attention, as a UNet has them at one resolution."""

    def kernel(inputs: int, outputs: int) -> jax.Array:
        return _array(3, 3, inputs, outputs, scale=(9 * inputs) ** -0.5)

    blocks = [{"first": kernel(CHANNELS, CHANNELS), "second": kernel(CHANNELS, CHANNELS)} for _ in range(2)]
    attention = {name: _array(CHANNELS, CHANNELS, scale=CHANNELS**-0.5) for name in ("query", "key", "value", "out")}
    time = _array(CHANNELS, CHANNELS, scale=CHANNELS**-0.5)
    return {
        "in": kernel(4, CHANNELS), "blocks": blocks, "attention": attention, "time": time, "out": kernel(CHANNELS, 4),
    }  # fmt: skip


def denoised(weights: Any, x: jax.Array, step: Any) -> jax.Array:
    """Latents after one step."""
    angles = step * jnp.exp(-jnp.arange(CHANNELS // 2) / 8.0)
    time = nn.silu(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)]) @ weights["time"])
    h = _convolved(x, weights["in"])
    first, second = weights["blocks"]
    h = _attended(weights["attention"], _residual(first, h, time))
    h = _residual(second, h, time)
    return x - 0.05 * _convolved(nn.silu(_normalized(h)), weights["out"])


def _normalized(x: jax.Array) -> jax.Array:
    grouped = x.reshape(*x.shape[:3], 32, -1)
    mean, variance = grouped.mean((1, 2, 4), keepdims=True), grouped.var((1, 2, 4), keepdims=True)
    return ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def _residual(block: Any, x: jax.Array, time: jax.Array) -> jax.Array:
    h = _convolved(nn.silu(_normalized(x)), block["first"]) + time
    return x + _convolved(nn.silu(_normalized(h)), block["second"])


def _attended(weights: Any, x: jax.Array) -> jax.Array:
    flat = _normalized(x).reshape(x.shape[0], -1, CHANNELS)
    query, key, value = (
        (flat @ weights[name]).reshape(*flat.shape[:2], HEADS, -1) for name in ("query", "key", "value")
    )
    mixed = nn.dot_product_attention(query, key, value).reshape(flat.shape)
    return x + (mixed @ weights["out"]).reshape(x.shape)


def diffusion(policy: str) -> Calls:
    """All steps in one program, and step by step: stock, jitted, frozen."""
    weights, x = denoiser_weights(), _array(1, LATENTS, LATENTS, 4)
    numbers = [jnp.float32(step) for step in range(STEPS)]

    def all_steps(weights: Any, x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, STEPS, lambda step, x: denoised(weights, x, step.astype(jnp.float32)), x)

    def one_by_one(step: Callable[[Any, Any], jax.Array]) -> Callable[[], object]:
        def call() -> object:
            latents = x
            for number in numbers:
                latents = step(latents, number)
            return jax.block_until_ready(latents)

        return call

    def ways(name: str, run: Callable[..., Any], step: Callable[..., Any]) -> Calls:
        made = {f"{name}, one program": lambda: jax.block_until_ready(run(x)), f"{name}, by steps": one_by_one(step)}
        for call in made.values():
            call()
        return made

    with hlo_dispatch.enabled(policy="never"):
        run, step = (jax.jit(lambda *rest, f=f: f(weights, *rest)) for f in (all_steps, denoised))
        calls = ways("stock", run, step)
    with hlo_dispatch.enabled(policy=policy):
        # The weights are arguments: those that a function closes over are preprocessed by the pass.
        run, step = (jax.jit(lambda w, *rest, f=f: f(w, *rest)) for f in (all_steps, denoised))
        calls |= ways("jit", lambda x: run(weights, x), lambda x, number: step(weights, x, number))
        calls |= ways("frozen", hlo_dispatch.freeze(all_steps, weights), hlo_dispatch.freeze(denoised, weights))
    return calls


def _against_stock(function: Callable[..., Any], *arguments: Any) -> Callable[[str], Calls]:
    def made(policy: str) -> Calls:
        calls: Calls = {}
        for way, chosen in (("stock", "never"), ("jit", policy)):
            with hlo_dispatch.enabled(policy=chosen):
                executable = jax.jit(lambda *given: function(*given)).lower(*arguments).compile()
            calls[way] = lambda executable=executable: jax.block_until_ready(executable(*arguments))
            calls[way]()
        return calls

    return made


def kalman_filter(observations: jax.Array) -> jax.Array:
    """Means of a filter of three states, one observation after the other."""
    transition = jnp.eye(3) + 0.1 * jnp.eye(3, k=1)
    noise = 0.01 * jnp.eye(3)

    def step(state: Any, observation: jax.Array) -> Any:
        mean, covariance = transition @ state[0], transition @ state[1] @ transition.T + noise
        gain = jnp.linalg.solve(covariance + jnp.eye(3), covariance).T
        mean = mean + gain @ (observation - mean)
        return (mean, covariance - gain @ covariance), mean

    return lax.scan(step, (jnp.zeros(3), jnp.eye(3)), observations)[1]


def hodgkin_huxley(voltage: jax.Array) -> jax.Array:
    """A cable of compartments for 1000 steps, by the method of Euler."""

    def rate(voltage: Any, scale: float, middle: float, width: float) -> Any:
        return scale * nn.sigmoid((voltage - middle) / width)

    def step(_: Any, state: Any) -> Any:
        v, m, h, n = state
        current = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.4)
        spread = jnp.roll(v, 1) + jnp.roll(v, -1) - 2 * v
        m = m + 0.01 * (rate(v, 4, -40, 9) * (1 - m) - rate(-v, 4, 60, 18) * m)
        h = h + 0.01 * (rate(-v, 0.1, 60, 20) * (1 - h) - rate(v, 1, -35, 10) * h)
        n = n + 0.01 * (rate(v, 0.2, -50, 10) * (1 - n) - rate(-v, 0.125, 60, 80) * n)
        return v + 0.01 * (10 - current + spread), m, h, n

    gates = [jnp.full_like(voltage, value) for value in (0.05, 0.6, 0.3)]
    return lax.fori_loop(0, 1000, step, (voltage, *gates))[0]


def lorenz(state: jax.Array) -> jax.Array:
    """64 systems for 500 steps, by the method of Runge and Kutta."""

    def slope(state: Any) -> Any:
        x, y, z = state
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(_: Any, state: Any) -> Any:
        a = slope(state)
        b = slope(state + 0.005 * a)
        c = slope(state + 0.005 * b)
        d = slope(state + 0.01 * c)
        return state + 0.01 / 6 * (a + 2 * b + 2 * c + d)

    return lax.fori_loop(0, 500, step, state)


def automaton(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """A depthwise convolution of a small image, 500 times."""
    groups = x.shape[-1]
    return lax.fori_loop(0, 500, lambda _, x: jnp.tanh(_convolved(x, kernel, groups)), x)


PROGRAMS: dict[str, Callable[[str], Calls]] = {
    "diffusion": diffusion,
    "kalman": _against_stock(kalman_filter, _array(1000, 3)),
    "hodgkin-huxley": _against_stock(hodgkin_huxley, -65 + _array(100)),
    "lorenz": _against_stock(lorenz, _array(3, 64)),
    "automaton": _against_stock(automaton, _array(3, 3, 1, 16, scale=0.3), _array(1, 16, 16, 16)),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.loops", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"{', '.join(PROGRAMS)}; else all")
    parser.add_argument("--policy", default="measure")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring each program")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"unknown program {unknown[0]!r}: one of {', '.join(PROGRAMS)}")
    print("\n".join(header()), flush=True)
    table = make_table("name", "way", "least, ms", "median, ms", "over the first")
    for column in table.columns[2:]:
        column.justify = "right"
    for name in chosen.programs or PROGRAMS:
        calls = PROGRAMS[name](chosen.policy)
        timings = interleaved(calls, seconds=chosen.seconds)
        first = min(next(iter(timings.values())).samples)
        for way, timing in timings.items():
            least = min(timing.samples)
            row(table, name, way, f"{1e3 * least:.3f}", f"{1e3 * timing.median:.3f}", f"{first / least:.2f}x")
    console().print(table)


if __name__ == "__main__":
    main()
