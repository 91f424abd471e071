"""Attribute fuzzer, the hash of random numbers: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own

WORDS = ("first", "second", "hashed_first", "hashed_second")
KEYS = ("key_0", "key_1", "key_2")


def valid_calls() -> list[WireCall]:
    """One pair of words, whole vectors and a remainder, divided among threads."""
    made = []
    for count in (1, 17, 64, 100_003):
        attributes: dict[str, Any] = {"type": "u32"}
        for role in (*WORDS, *KEYS):
            attributes |= {f"{role}_dims": [count if role in WORDS else 1], f"{role}_strides": [1]}
        words = Array("u32", [count])
        made.append(own("threefry2x32", attributes, [words, words, *(Array("u32", []) for _ in KEYS)], words, words))
    return made


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """As the paper has it, in Python's integers of any size."""
    keys = [int(key.reshape(-1)[0]) for key in given[2:]]
    words = zip(given[0].reshape(-1).tolist(), given[1].reshape(-1).tolist(), strict=True)
    expected = np.array([hashed(*pair, keys) for pair in words], np.uint32).reshape(-1, 2)
    return [(role, results[n].reshape(-1), expected[:, n]) for n, role in enumerate(WORDS[2:])]


def hashed(first: int, second: int, keys: list[int]) -> tuple[int, int]:
    for group in range(5):
        for bits in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            first = (first + second) % 2**32
            second = ((second << bits) % 2**32 | second >> (32 - bits)) ^ first
        first = (first + keys[group % 3]) % 2**32
        second = (second + keys[(group + 1) % 3] + group + 1) % 2**32
    return first, second
