"""One form of the decoder in JAX: stock, jitted with the pass, frozen, or saved and loaded."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.bench.generate import decoder
from hlo_dispatch.bench.generate.plan import formats, is_frozen
from hlo_dispatch.bench.generate.session import PROMPT, longest_prompt
from hlo_dispatch.bench.generate.weights import SIZES, Array, random_prompt
from hlo_dispatch.process.retained_memory import return_free_memory


def make(requests: Sequence[dict[str, Any]], **settings: Any) -> JaxSession:
    """A session; weights are made, and nothing is compiled."""
    return JaxSession(prompt=longest_prompt(requests), **settings)


def write(folder: Path, requests: Sequence[dict[str, Any]], **settings: Any) -> Path:
    """The frozen decoder as a file, with the programs of the first tokens and of these requests."""
    session = make(requests, **settings)
    session.load()
    session.decode(PROMPT, session.prefill(PROMPT))
    for request in requests:
        session.call(request)()
    return session.save(folder / f"{settings['way']} {settings['form']}")


class JaxSession:
    """A step function, with a cache of its own for each capacity."""

    def __init__(
        self, size: str, form: str, dtype: str, way: str, batch: int, capacity: int, policy: str, prompt: int,
        file: str = "",
    ) -> None:  # fmt: skip
        """
        Args:
            file: which is loaded instead of weights that are made; empty: none.
        """
        self._size, self._form, self._batch, self._dtype = SIZES[size], form, batch, dtype
        self._capacity, self._way, self._file = capacity, way, file
        hlo_dispatch.install(policy="never" if way == "stock" else policy)
        self._weights: Any = None if file else jax.block_until_ready(decoder.parameters(self._size, form, dtype))
        tokens = random_prompt(self._size, batch, prompt)
        self._prompt: Any = lru_cache(lambda count: jnp.asarray(tokens[:, :count]))
        self._position: Any = lru_cache(lambda position: jnp.int32(position))
        self._caches: dict[int, Any] = {}
        self._run: Any = None

    def load(self) -> None:
        if self._file:
            self._run = hlo_dispatch.load(self._file)
            return
        jitted = jax.jit(decoder.step(self._size, self._form), donate_argnums=1)
        if is_frozen(self._way):
            weights, activations = formats(self._way)
            self._run = hlo_dispatch.freeze(jitted, self._weights, weights=weights, activations=activations)
        else:
            self._run = partial(jitted, self._weights)

    def save(self, path: Path) -> Path:
        """Save what is frozen."""
        self._run.save(path)
        return path

    def forget_weights(self) -> None:
        self._weights = None

    @property
    def weight_bytes(self) -> int:
        if isinstance(self._run, partial):
            return sum(array.nbytes for array in jax.tree.leaves(self._run.args))
        return self._run.nbytes

    @property
    def cache_bytes(self) -> int:
        return sum(array.nbytes for array in jax.tree.leaves(self._caches))

    def prefill(self, count: int) -> Array:
        return np.asarray(self._prefilled(count, self._capacity))[:, 0]

    def decode(self, position: int, tokens: Array) -> Array:
        return np.asarray(self._decoded(position, self._capacity, jnp.asarray(tokens)[:, None]))[:, 0]

    def _prefilled(self, count: int, capacity: int) -> Any:
        self._caches.pop(capacity, None)
        return self._called(self._empty_cache(capacity), capacity, self._prompt(count), 0)

    def _decoded(self, position: int, capacity: int, tokens: Any) -> Any:
        cache = self._caches.pop(capacity, None)
        return self._called(self._empty_cache(capacity) if cache is None else cache, capacity, tokens, position)

    def _empty_cache(self, capacity: int) -> Any:
        cache = decoder.empty_cache(self._size, self._form, self._batch, capacity, self._dtype)
        return jax.block_until_ready(cache)

    def _called(self, cache: Any, capacity: int, tokens: Any, position: int) -> Any:
        token, cache = self._run(cache, tokens, self._position(position))
        self._caches[capacity] = jax.block_until_ready(cache)
        return jax.block_until_ready(token)

    def call(self, request: dict[str, Any]) -> Callable[[], object]:
        capacity = request["capacity"]
        if "prefill" in request:
            return lambda: self._prefilled(request["prefill"], capacity)
        return lambda: self._decoded(request["position"], capacity, self._prompt(1))

    def keep(self, request: dict[str, Any]) -> None:
        capacity = request["capacity"]
        self._caches = {capacity: self._caches[capacity]}
        return_free_memory()
