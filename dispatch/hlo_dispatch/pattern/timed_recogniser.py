"""Profiling recognizer: records the time that each activation takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hlo_dispatch.pattern.recognise import Recognised, Recogniser, SolvedActivation, solve
from hlo_dispatch.pattern.table import Activation


@dataclass(frozen=True)
class _Timed(SolvedActivation):
    spent: dict[str, float] = field(default_factory=dict[str, float])

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        start = time.perf_counter()
        values = super().evaluate(x)
        _add(self.spent, self.activation, start)
        return values


class TimedRecogniser(Recogniser):
    """An activation recognizer that records times; not thread-safe."""

    def __init__(self, activations: tuple[Activation, ...]) -> None:
        self._spent: dict[str, float] = {}
        super().__init__(activations)
        self._plain = [_Timed(candidate.activation, candidate.parameters, self._spent) for candidate in self._plain]

    @property
    def spent(self) -> Mapping[str, float]:
        """Activation → seconds for solving and evaluating it in the last `recognise`; only evaluated ones.

        Activations without parameters are first compared all at once, which costs next to nothing.
        """
        return self._spent

    def recognise(self, probes: np.ndarray, values: np.ndarray, tolerance: float) -> Recognised | None:
        self._spent.clear()
        return super().recognise(probes, values, tolerance)

    def _solved(self, values: np.ndarray) -> list[SolvedActivation]:
        samples = dict(zip(self._samples, values[: len(self._samples)], strict=True))
        found: list[SolvedActivation] = []
        for activation in self._solvable:
            start = time.perf_counter()
            parameters = solve(activation, samples)
            _add(self._spent, activation, start)
            if parameters is not None:
                found.append(_Timed(activation, parameters, self._spent))
        return found


def _add(spent: dict[str, float], activation: Activation | None, start: float) -> None:
    name = activation.name if activation is not None else "identity"
    spent[name] = spent.get(name, 0.0) + time.perf_counter() - start
