"""Recognition of recurrent cells: what a loop body computes from pre-activations and state, compared with formulas.

Pre-activations are sums of products and biases. Which values are summed up is found by moving one up and another one
down by the same amount: if no result changes, only their sum counts. The sums are then given to each cell's formula
in every order of its gates, one of them with a constant of the body's added, as the bias of a forget gate is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_dispatch.match.elementwise_points import Array, ElementwisePoints, SourceElements

_CLOSE = 1e-6
_SEED = 5
_MOST_ADDENDS = 4
"""Constants that are tried: a body with more is no cell."""


@dataclass(frozen=True)
class Cell:
    """A recurrent cell: its kind and the values that each of its pre-activations is the sum of."""

    kind: str
    """What the kernel calls it."""
    gates: tuple[tuple[SourceElements, ...], ...]
    """The summands of each pre-activation, in the kernel's order of gates; GRU has its last gate's hidden ones apart,
    as a fourth."""
    offsets: tuple[float, ...]
    """A constant that each pre-activation has added."""

    @property
    def formula(self) -> str:
        return _NAMES[self.kind]

    @property
    def resets_behind(self) -> bool:
        """Whether it is a GRU whose reset gate follows the product."""
        return self.kind in ("gru", "gru_complement")

    @property
    def resets_first(self) -> bool:
        """Whether it is a GRU whose reset gate precedes its second product."""
        return self.kind in ("gru_reset_first", "gru_reset_first_complement")


_NAMES = {
    "lstm": "lstm(x, h, c)",
    "gru": "gru(x, h)",
    "gru_complement": "gru(x, h)",
    "gru_reset_first": "gru_reset_first(x, h)",
    "gru_reset_first_complement": "gru_reset_first(x, h)",
    "tanh": "tanh(x·w + h·u)",
    "relu": "relu(x·w + h·u)",
}


@dataclass(frozen=True)
class Signature:
    """The values that a cell reads besides biases."""

    hidden: tuple[SourceElements, ...]
    """Products of the state."""
    state: SourceElements | None
    cell_state: SourceElements | None
    state_count: int
    """How many results are the next states; what follows has to equal the first."""
    proposal_count: int = 0
    """How many of the last results are what products read."""


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _lstm(gates: Sequence[Array], state: Array, cell_state: Array) -> list[Array]:
    i, f, g, o = gates
    memory = _sigmoid(f) * cell_state + _sigmoid(i) * np.tanh(g)
    return [_sigmoid(o) * np.tanh(memory), memory]


def _gru(gates: Sequence[Array], state: Array, cell_state: Array) -> list[Array]:
    r, z, n, hidden = gates
    update = _sigmoid(z)
    return [update * state + (1.0 - update) * np.tanh(n + _sigmoid(r) * hidden)]


def _gru_complement(gates: Sequence[Array], state: Array, cell_state: Array) -> list[Array]:
    r, z, n, hidden = gates
    return _gru((r, -z, n, hidden), state, cell_state)


def _gru_reset_first(gates: Sequence[Array], state: Array, cell_state: Array) -> list[Array]:
    r, z, n = gates
    update = _sigmoid(z)
    return [update * state + (1.0 - update) * np.tanh(n), _sigmoid(r) * state]


def _gru_reset_first_complement(gates: Sequence[Array], state: Array, cell_state: Array) -> list[Array]:
    r, z, n = gates
    return _gru_reset_first((r, -z, n), state, cell_state)


_Formula = Callable[[Sequence[Array], Array, Array], list[Array]]
# By the number of results, products of the state, sums, and further results that products read.
_FORMULAS: Mapping[tuple[int, int, int, int], Mapping[str, _Formula]] = {
    (2, 4, 4, 0): {"lstm": _lstm},
    (1, 3, 4, 0): {"gru": _gru, "gru_complement": _gru_complement},
    (1, 3, 3, 1): {"gru_reset_first": _gru_reset_first, "gru_reset_first_complement": _gru_reset_first_complement},
    (1, 1, 1, 0): {
        "tanh": lambda gates, state, cell_state: [np.tanh(gates[0])],
        "relu": lambda gates, state, cell_state: [np.maximum(gates[0], 0.0)],
    },
}


def recognise_cell(points: ElementwisePoints, signature: Signature, samples: int) -> Cell | None:
    """The cell whose next state, and cell state where it has one, these results are; None: they are no cell's."""
    random = np.random.default_rng(_SEED)
    # Both sides of every function's bends, and where they are flat.
    spread = np.where(np.arange(samples) % 4 == 0, 8.0, 1.5)
    values = {source: random.standard_normal(samples) * spread for source in points.sources}
    results = points.evaluate(values)
    count, last = signature.state_count, len(results) - signature.proposal_count
    if any(not _are_close(kept, results[0]) for kept in results[count:last]):
        return None
    wanted = [*results[:count], *results[last:]]
    states = {signature.state, signature.cell_state}
    sums = _sums(points, values, results, [source for source in values if source not in states], signature.hidden)
    formulas = _FORMULAS.get((count, len(signature.hidden), len(sums), signature.proposal_count))
    if formulas is None or not set(signature.hidden) <= set(values):
        return None
    zero = np.zeros(samples)
    state, memory = (zero if s is None else values.get(s, zero) for s in (signature.state, signature.cell_state))
    orders = [order for order in itertools.permutations(sums) if _may_be(order, signature.hidden)]
    for offsets, order in itertools.product(_offsets(points, len(sums)), orders):
        gates = [
            np.sum([values[source] for source in gate], axis=0) + offset
            for gate, offset in zip(order, offsets, strict=True)
        ]
        for kind, formula in formulas.items():
            with np.errstate(all="ignore"):
                expected = formula(gates, state, memory)
            if all(_are_close(one, other) for one, other in zip(wanted, expected, strict=True)):
                return Cell(kind, tuple(order), offsets)
    return None


def _offsets(points: ElementwisePoints, count: int) -> Iterator[tuple[float, ...]]:
    """None for any gate; then each constant that the body adds to a sum, for one gate alone."""
    yield (0.0,) * count
    for constant in points.constant_addends[:_MOST_ADDENDS]:
        for gate in range(count):
            yield tuple(constant if place == gate else 0.0 for place in range(count))


def _sums(
    points: ElementwisePoints,
    values: Mapping[SourceElements, Array],
    results: Sequence[Array],
    summands: Sequence[SourceElements],
    hidden: Sequence[SourceElements],
) -> list[tuple[SourceElements, ...]]:
    """The summands by sum; each product of the state begins one."""
    sums: list[list[SourceElements]] = [[source] for source in hidden]
    step = np.linspace(0.4, 0.9, len(next(iter(values.values()))))
    for source in summands:
        if source in hidden:
            continue
        for found in sums:
            moved = {**values, source: values[source] + step, found[0]: values[found[0]] - step}
            if all(_are_close(one, other) for one, other in zip(points.evaluate(moved), results, strict=True)):
                found.append(source)
                break
        else:
            sums.append([source])
    return [tuple(found) for found in sums]


def _may_be(order: Sequence[tuple[SourceElements, ...]], hidden: Sequence[SourceElements]) -> bool:
    """Whether each gate has a product of the state, but GRU's third, whose product is the fourth."""
    without = [place for place, gate in enumerate(order) if not set(gate) & set(hidden)]
    return without == ([2] if len(hidden) < len(order) else [])


def _are_close(one: Array, other: Array) -> bool:
    return bool(np.all(np.abs(one - other) <= _CLOSE * (1.0 + np.abs(other))))
