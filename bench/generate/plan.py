"""What a run of the bench measures: contenders by precision, and requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.bench.generate.peers import PEERS

WAYS = (
    "stock", "jit", "frozen", "frozen-bf16", "frozen-int8", "frozen-int8-int8", "frozen-int4", "frozen-int4-int8",
    "loaded-int8", "loaded-int4",
)  # fmt: skip
"""In JAX; after "frozen-" the format that weights are stored in, and that of activations in products of many rows. What
is loaded was frozen, compiled and saved by another process before."""
PRECISIONS = ("f32", "bf16", "int8", "int4")
"""Of weights."""
PREFILLS = (128, 512)
POSITIONS = (128, 512)
TURNS = 4
CALLS = 5
"""Tokens of a turn."""


def calls(name: str) -> int:
    """How often a turn makes the request of this name."""
    return 1 if name.startswith("prefill") else CALLS


def is_frozen(way: str) -> bool:
    """Whether weights are frozen, here or in a saved file."""
    return way.startswith(("frozen", "loaded"))


def has_file(way: str) -> bool:
    """Whether another process writes a file of it before."""
    return way in PEERS or way.startswith("loaded")


def formats(way: str) -> tuple[str | None, str | None]:
    """The formats of weights and of activations; None: unchanged."""
    _, weights, activations, *_ = (*way.split("-"), "", "")
    return weights or None, activations or None


@dataclass(frozen=True)
class Contender:
    """What takes turns with others of its precision, in a process of its own."""

    name: str
    way: str
    """Or the peer's name."""
    form: str
    """Empty for a peer."""
    precision: str
    dtype: str
    """Of the program."""


@dataclass(frozen=True)
class GenerationPlan:
    """What is measured."""

    size: str
    forms: Sequence[str]
    ways: Sequence[str]
    """Peers among them; these alone are measured in every precision."""
    dtype: str
    """Empty: bf16 where weights are not frozen, f32 where they are."""
    capacities: Sequence[int]
    """Of the cache, the first for everything; the others, of forms in JAX, for a token at the first position."""
    policy: str
    positions: Sequence[int] = POSITIONS
    batch: int = 1
    turns: int = TURNS
    is_profiled: bool = False

    @property
    def groups(self) -> dict[str, list[Contender]]:
        """Precision → those that take turns."""
        ours = [self._in_jax(way, form) for way in self.ways if way not in PEERS for form in self.forms]
        found = {contender.precision for contender in ours} or set(PRECISIONS)
        return {
            precision: [contender for contender in ours if contender.precision == precision]
            + [self._peer(way, precision) for way in self.ways if way in PEERS]
            for precision in PRECISIONS
            if precision in found
        }

    def _in_jax(self, way: str, form: str) -> Contender:
        dtype = self.dtype or ("f32" if is_frozen(way) else "bf16")
        precision, _ = formats(way)
        return Contender(self._name(dtype, way, form), way, form, precision or dtype, dtype)

    def _peer(self, peer: str, precision: str) -> Contender:
        return Contender(self._name(precision, peer), peer, "", precision, precision)

    def _name(self, *words: str) -> str:
        return " ".join((self.size, *words, f"batch {self.batch}"))

    @property
    def names(self) -> list[str]:
        """Of all contenders."""
        return [contender.name for group in self.groups.values() for contender in group]

    @property
    def first_token(self) -> dict[str, Any]:
        """The request whose memory is measured, and that is profiled."""
        return {"position": min(self.positions[0], self.capacities[0] - 1), "capacity": self.capacities[0]}

    def requests(self, contender: Contender) -> dict[str, dict[str, Any]]:
        """Name → request."""
        first, *others = self.capacities
        prefills = {f"prefill {n}": {"prefill": n, "capacity": first} for n in PREFILLS if n <= first}
        tokens = {f"token at {n}": {"position": n, "capacity": first} for n in self.positions if n < first}
        begin = self.positions[0]
        more = {f"token at {begin} of {n}": {"position": begin, "capacity": n} for n in others}
        found = prefills | tokens | ({} if contender.way in PEERS else more)
        return {name: request | {"calls": calls(name)} for name, request in found.items()}
