"""Check of automatic freezing beside `jax.jit`'s own call, over pytrees of several kinds.

    python -m bench.automatic.pytrees [--seconds 2] [--only NAME …]

Each pytree is an argument of a program that computes one addition, and takes every leaf (`keep_unused`). Prints the
microseconds of `jax.jit`'s own call, of the check of a call with the same frozen leaves, of a whole call of
`hlo_dispatch.jit` that runs its frozen program, and the check over `jax.jit`'s call. The exit status is 1 where that
is above 0.6.
"""

# pyright: basic, reportMissingImports=false
# jax has no complete type hints, and the frameworks are not there everywhere.
from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import hlo_dispatch
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.automatic_freezing.services import immediate
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo.timing import interleaved

MOST = 0.6
"""What the check may take of `jax.jit`'s own call."""
_CALLS = 20
_WIDTH = 64


class Dense(NamedTuple):
    """A layer as a named tuple."""

    w: Any
    b: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class DenseData:
    """A layer as a registered dataclass."""

    w: Any
    b: Any
    name: str = dataclasses.field(metadata={"static": True}, default="dense")


def _layer() -> tuple[Any, Any]:
    return jnp.ones((_WIDTH, _WIDTH)), jnp.ones(_WIDTH)


def _dict(count: int) -> Any:
    return {f"layer_{number}": dict(zip(("w", "b"), _layer(), strict=True)) for number in range(count)}


def _adam(count: int) -> Any:
    import optax

    parameters = _dict(count)
    return parameters, optax.adam(1e-3).init(parameters)


def _frozen_dict(count: int) -> Any:
    from flax.core import FrozenDict

    return FrozenDict(_dict(count))


def _train_state(count: int) -> Any:
    import optax
    from flax.training.train_state import TrainState

    return TrainState.create(apply_fn=None, params=_dict(count), tx=optax.adam(1e-3))  # pyright: ignore[reportArgumentType]


def _nnx(count: int) -> Any:
    from flax import nnx

    rngs = nnx.Rngs(0)
    return nnx.state(nnx.Sequential(*(nnx.Linear(_WIDTH, _WIDTH, rngs=rngs) for _ in range(count))))


def _equinox(count: int) -> Any:
    import equinox

    layers = [equinox.nn.Linear(_WIDTH, _WIDTH, key=jax.random.key(0)) for _ in range(count)]
    return equinox.filter(equinox.nn.Sequential(layers), equinox.is_array)


PYTREES: dict[str, Callable[[], Any]] = {
    "dict, 5 layers": partial(_dict, 5),
    "dict, 100 layers": partial(_dict, 100),
    "list of tuples, 100": lambda: [_layer() for _ in range(100)],
    "named tuples, 5": lambda: [Dense(*_layer()) for _ in range(5)],
    "named tuples, 100": lambda: [Dense(*_layer()) for _ in range(100)],
    "dataclasses, 100": lambda: [DenseData(*_layer()) for _ in range(100)],
    "OrderedDict, 100": lambda: collections.OrderedDict(_dict(100)),
    "optax adam, 50 layers": partial(_adam, 50),
    "Flax FrozenDict, 100": partial(_frozen_dict, 100),
    "Flax TrainState, 50": partial(_train_state, 50),
    "Flax nnx.State, 50": partial(_nnx, 50),
    "Equinox modules, 50": partial(_equinox, 50),
}


def _call(p: Any, x: Any) -> Any:
    return x + 1


def _often(call: Callable[..., Any], *arguments: Any) -> None:
    for _ in range(_CALLS):
        call(*arguments)


def measured(made: Callable[[], Any], seconds: float) -> tuple[dict[str, float], int]:
    """Median seconds of jit's call, of the check and of a frozen call; number of leaves."""
    p, x = made(), jnp.ones(8)
    jitted, automatic = jax.jit(_call, keep_unused=True), JittedFunction(_call, {"keep_unused": True}, immediate())
    automatic(p, x)
    (site,) = automatic.sites
    if site.checked((p, x), {}) is None:
        raise RuntimeError(f"nothing is frozen: {automatic.report}")
    ways = {
        "jit": partial(_often, jitted, p, x),
        "check": partial(_often, site.checked, (p, x), {}),
        "frozen": partial(_often, automatic, p, x),
    }
    timings = interleaved(ways, seconds=seconds)
    return {name: timing.median / _CALLS for name, timing in timings.items()}, len(jax.tree.leaves(p))


def results(names: list[str], seconds: float) -> Iterator[tuple[str, dict[str, float], int]]:
    """Name, times and number of leaves of each pytree whose framework is installed."""
    for name in names:
        with contextlib.suppress(ImportError):
            yield name, *measured(PYTREES[name], seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2, help="measuring time of each pytree")
    parser.add_argument("--only", nargs="*", default=list(PYTREES), choices=PYTREES, metavar="NAME")
    options = parser.parse_args()
    print("\n".join(header()))
    worst = 0.0
    with hlo_dispatch.enabled():
        for name, times, leaves in results(options.only, options.seconds):
            share = times["check"] / times["jit"]
            worst = max(worst, share)
            took = ", ".join(f"{way} {time * 1e6:.1f} µs" for way, time in times.items())
            print(f"{name} ({leaves} leaves): {took}; check over jit {share:.2f}", flush=True)
    raise SystemExit(1 if worst > MOST else 0)


if __name__ == "__main__":
    main()
