"""Process of one form of the decoder in one way, which measures on request (worker.py)."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from hlo_dispatch.bench.worker import serve

WAYS = ("stock", "jit", "frozen", "frozen-bf16", "frozen-int8", "frozen-int4")
"""After "frozen-" the format that weights are stored in."""
PROMPT = 128
TOKENS = 16
"""Generated once, to compare forms."""


class GenerationSession:
    """One form of the decoder, made and called for the first time."""

    def __init__(
        self, size: str, form: str, dtype: str, way: str, capacity: int, policy: str, requests: list[dict[str, Any]]
    ) -> None:
        """
        Args:
            requests: what will be measured; each is called once, while the weights that a frozen one is compiled with
                are there.
        """
        import jax
        import jax.numpy as jnp
        import numpy as np

        import hlo_dispatch
        from hlo_dispatch.bench.generate import decoder

        self._size, self._form, self._dtype = decoder.SIZES[size], form, dtype
        self._decoder, self._jax = decoder, jax
        weights = decoder.parameters(self._size, form, dtype)
        jax.block_until_ready(weights)
        jitted = jax.jit(decoder.step(self._size, form), donate_argnums=1)
        hlo_dispatch.install(policy="never" if way == "stock" else policy)
        self.weight_bytes = sum(array.nbytes for array in jax.tree.leaves(weights))
        prompt = np.random.default_rng(7).integers(3, self._size.vocabulary, (1, capacity)).astype("int32")
        self._prompt: Any = lru_cache(lambda count: jnp.asarray(prompt[:, :count]))
        self._position: Any = lru_cache(lambda position: jnp.int32(position))
        self._caches: dict[int, Any] = {}
        begin = time.perf_counter()
        if way.startswith("frozen"):
            weight_format = way.partition("-")[2] or None
            self._run: Any = hlo_dispatch.freeze(jitted, weights, weights=weight_format)
        else:
            self._run = partial(jitted, weights)
        token = self.prefill(PROMPT, capacity)
        self.first = time.perf_counter() - begin
        self.tokens = [int(token[0, 0])]
        for number in range(TOKENS):
            token = self.decode(PROMPT + number, capacity, token)
            self.tokens.append(int(token[0, 0]))
        for request in requests:
            self.call(request)()
        if way.startswith("frozen"):
            self.weight_bytes = self._run.nbytes

    def prefill(self, count: int, capacity: int) -> Any:
        """The token behind a prompt, with a new cache."""
        self._caches.pop(capacity, None)
        cache = self._decoder.empty_cache(self._size, self._form, capacity, self._dtype)
        self._jax.block_until_ready(cache)
        return self._called(cache, capacity, self._prompt(count), 0)

    def decode(self, position: int, capacity: int, token: Any = None) -> Any:
        """The token behind one token at a position."""
        cache = self._caches.pop(capacity, None)
        if cache is None:
            cache = self._decoder.empty_cache(self._size, self._form, capacity, self._dtype)
        return self._called(cache, capacity, self._prompt(1) if token is None else token, position)

    def keep_cache(self, capacity: int) -> None:
        """Delete every other cache, and give its memory back."""
        from hlo_dispatch.process.retained_memory import return_free_memory

        self._caches = {capacity: self._caches[capacity]}
        return_free_memory()

    def _called(self, cache: Any, capacity: int, tokens: Any, position: int) -> Any:
        token, cache = self._run(cache, tokens, self._position(position))
        self._caches[capacity] = self._jax.block_until_ready(cache)
        return self._jax.block_until_ready(token)

    def call(self, request: dict[str, Any]) -> Callable[[], object]:
        """What a request measures: a prefill of so many tokens, or a token at a position."""
        capacity = request["capacity"]
        if "prefill" in request:
            return lambda: self.prefill(request["prefill"], capacity)
        return lambda: self.decode(request["position"], capacity)


def main() -> None:
    """Serve a parent."""
    sessions: list[GenerationSession] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        from hlo_dispatch.bench.models.process import forget_peak, status

        if "make" in request:
            made = GenerationSession(**request["make"])
            sessions[:] = [made]
            return {"first": made.first, "tokens": made.tokens, "weights": made.weight_bytes}
        call = sessions[0].call(request)
        if "profile" in request:
            from hlo_dispatch.bench.time_by_kind import time_by_kind

            return time_by_kind(call, runs=request["profile"], seconds=request["seconds"]).to_dict()
        call()
        if "memory" in request:
            sessions[0].keep_cache(request["capacity"])
            before = forget_peak()
            for _ in range(request["memory"]):
                call()
            return {"resident": before, "peak": status("VmHWM")}
        samples: list[float] = []
        for _ in range(request["calls"]):
            begin = time.perf_counter()
            call()
            samples.append(time.perf_counter() - begin)
        return {"samples": samples}

    serve(answer)


if __name__ == "__main__":
    main()
