"""What a process of the bench measures: a model that is loaded and has generated its first tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hlo_dispatch.bench.generate.weights import Array

PROMPT = 128
TOKENS = 16
"""Generated once behind the prompt, to compare."""


class Session(Protocol):
    """A model in one way."""

    @property
    def weight_bytes(self) -> int: ...

    @property
    def cache_bytes(self) -> int:
        """Of the caches that there are; 0 where the library keeps them."""
        ...

    def load(self) -> None:
        """Load, prepare and compile: what a first token waits for."""
        ...

    def prefill(self, count: int) -> Array:
        """The tokens behind a prompt of so many, one for each sequence of the batch, with a new cache."""
        ...

    def decode(self, position: int, tokens: Array) -> Array:
        """The tokens behind those at a position, with the cache that `prefill` left."""
        ...

    def call(self, request: dict[str, Any]) -> Callable[[], object]:
        """What a request measures: a prefill of so many tokens, or a token at a position."""
        ...

    def forget_weights(self) -> None:
        """Free what only compiling needed."""
        ...

    def keep(self, request: dict[str, Any]) -> None:
        """Free every cache but that of a request."""
        ...


def first_tokens(session: Session) -> list[int]:
    """The greedy tokens behind the prompt, those of all sequences of the batch step by step."""
    tokens = session.prefill(PROMPT)
    found = tokens.tolist()
    for number in range(TOKENS):
        tokens = session.decode(PROMPT + number, tokens)
        found += tokens.tolist()
    return found


def longest_prompt(requests: Iterable[dict[str, Any]]) -> int:
    """How many tokens of a prompt the requests, and the first tokens, read."""
    return max(PROMPT, *(max(request.get("prefill", 0), request.get("position", 0) + 1) for request in requests))
