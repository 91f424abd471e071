"""Activation recognition by value: which activation of the table equals a function, whatever its spelling.

The matcher evaluates a region of one variable in float64 at `probes(constants)`; the recogniser solves each
activation's parameters from the samples among them, rounds those to single precision as the kernel will,
and compares the activation with the region at every probe (see agreement.py). The best fit wins; among
equally good fits the one with the fewest parameters, then the one written first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_dispatch.pattern.agreement import ErrorMeasure
from hlo_dispatch.pattern.formula import Formula
from hlo_dispatch.pattern.probes import fixed_probes, probes_around
from hlo_dispatch.pattern.table import Activation, describe, short

# A few points that between them refuse nearly every wrong activation, evaluated before the full set.
_SCREENING_PROBES = (-1e4, -50.0, -7.5, -2.5, -1.5, -0.25, 0.25, 1.5, 2.5, 7.5, 50.0, 1e4)
TOLERANCES: Mapping[str, float] = {"f32": 2e-6, "f16": 4e-4, "bf16": 3e-3, "f64": 2e-6}
"""Per element type of the region's constants, what `recognise` should be given: above what rounding them
does to any spelling (5e-8, 2.5e-4, 2e-3), below the smallest factor the type can write besides 1 (bf16:
0.99609375), so that 0.99609375 * tanh(x) is never taken for tanh(x)."""

_EQUAL_FACTOR = 4.0
# Of the tolerance, 8e-8 for f32: differences below are a constant's rounding, 1.702 in the formula and in the
# program, and no evidence against an activation that has fewer parameters.
_EQUAL_FLOOR = 0.04


@dataclass(frozen=True)
class Recognised:
    """A recognized activation, bound to the kernel's numbers."""

    name: str
    formula: str
    algorithm: str
    """The oneDNN algorithm; empty for the identity, which needs no post-op at all."""
    alpha: float
    beta: float
    error: float
    """The largest disagreement over all probes."""
    parameters: Mapping[str, float]
    propagates_nan: bool
    """Whether the region turns NaN into NaN (a select-spelled relu does not)."""

    @property
    def is_identity(self) -> bool:
        return not self.algorithm

    def describe(self) -> str:
        """`gelu_tanh`, `clip(0, 6)`."""
        return describe(self.name, list(self.parameters.values()))


@dataclass(frozen=True)
class NearestActivation:
    """The activation that came closest without matching, for messages."""

    name: str
    description: str
    error: float
    x: float
    got: float
    expected: float

    def sentence(self) -> str:
        return (
            f"closest is {self.description}, but at x = {short(self.x)} the region gives {self.got:.6g} "
            f"where it gives {self.expected:.6g}"
        )


@dataclass(frozen=True)
class SolvedActivation:
    """An activation with its parameters solved for one region."""

    activation: Activation | None
    """None is the identity."""
    parameters: Mapping[str, float]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if self.activation is None:
            return x
        return self.activation.formula.closure({"x": x, **self.parameters})

    @property
    def description(self) -> str:
        return "identity" if self.activation is None else self.activation.describe(self.parameters)


class Recogniser:
    """Activation recognizer of a table; thread-safe, since only restricted copies are created afterwards."""

    def __init__(self, activations: Sequence[Activation]) -> None:
        self._activations = tuple(activations)
        self._restricted: dict[tuple[str, ...], Recogniser] = {}
        self._order: dict[str, int] = {activation.name: i for i, activation in enumerate(activations, 1)}
        self._plain = [SolvedActivation(None, {})]
        self._plain += [SolvedActivation(activation, {}) for activation in activations if not activation.parameters]
        self._solvable = [activation for activation in activations if activation.parameters]
        asked = (point for a in self._solvable for p in a.parameters for point in p.solve.samples)
        self._samples: tuple[float, ...] = tuple(dict.fromkeys(asked))
        self._fixed = fixed_probes(self._samples)
        self._fixed.flags.writeable = False
        self._fixed_bytes = self._fixed.tobytes()
        self._early = np.array([int(np.flatnonzero(self._fixed == point)[0]) for point in _SCREENING_PROBES])
        self._early_points = self._fixed[self._early]
        self._early_measure = ErrorMeasure.at(self._early_points)
        self._fixed_measure = ErrorMeasure.at(self._fixed)
        with np.errstate(all="ignore"):
            self._plain_early = np.stack([c.evaluate(self._early_points) for c in self._plain])
        self._nan = int(np.flatnonzero(np.isnan(self._fixed))[0])

    def has_no_others(self, names: Collection[str]) -> bool:
        """Whether all activations of the table are among these."""
        return self._order.keys() <= set(names)

    def restricted(self, names: tuple[str, ...]) -> Recogniser:
        """The recognizer for a subset of the activations."""
        if names not in self._restricted:
            everything = self.has_no_others(names)
            own = [activation for activation in self._activations if activation.name in names]
            self._restricted[names] = self if everything else type(self)(tuple(own))
        return self._restricted[names]

    def probes(self, constants: Sequence[float] = ()) -> np.ndarray:
        """The points at which to evaluate a region with these constants."""
        around = probes_around(constants)
        return np.concatenate([self._fixed, around]) if around.size else self._fixed

    def recognise(self, probes: np.ndarray, values: np.ndarray, tolerance: float) -> Recognised | None:
        """The activation whose values at `probes` are `values`, or None."""
        self._check(probes, values)
        with np.errstate(all="ignore"):
            candidates = self._screened(values, tolerance)
            if not candidates:
                return None
            measure = self._fixed_measure if probes is self._fixed else ErrorMeasure.at(probes)
            fits: list[tuple[float, SolvedActivation]] = []
            for candidate in candidates:
                error = float(measure.errors(values, candidate.evaluate(probes)).max())
                if error <= tolerance:
                    fits.append((error, candidate))
            return self._recognised(fits, tolerance, bool(np.isnan(values[self._nan]))) if fits else None

    def nearest(self, probes: np.ndarray, values: np.ndarray, tolerance: float) -> NearestActivation | None:
        """The activation with the smallest error over all probes, and its clearest disagreement; slow, for messages."""
        self._check(probes, values)
        measure = ErrorMeasure.at(probes)
        best: tuple[float, NearestActivation] | None = None
        with np.errstate(all="ignore"):
            for candidate in [*self._plain, *self._solved(values)]:
                expected = candidate.evaluate(probes)
                errors = measure.errors(values, expected)
                wrong = errors > tolerance
                distance = float(np.minimum(errors, 1.0).sum())
                if best is not None and distance >= best[0]:
                    continue
                worst = _clearest(probes, errors, wrong, np.isfinite(values) & np.isfinite(expected))
                name = candidate.activation.name if candidate.activation else "identity"
                seen = (float(array[worst]) + 0.0 for array in (errors, probes, values, expected))  # -0 is 0
                best = distance, NearestActivation(name, candidate.description, *seen)
        return best[1] if best else None

    def _check(self, probes: np.ndarray, values: np.ndarray) -> None:
        size = self._fixed.size
        if probes is not self._fixed and probes[:size].tobytes() != self._fixed_bytes:
            raise ValueError("these probes were not made by this recogniser's probes()")
        if values.shape != probes.shape or values.dtype != np.float64:
            raise ValueError(f"one float64 value per probe is wanted, not {values.dtype}{values.shape}")

    def _screened(self, values: np.ndarray, tolerance: float) -> list[SolvedActivation]:
        """Candidates that agree at the screening probes; NumPy's warnings must be off."""
        region = values[self._early]
        fits = self._early_measure.errors(region, self._plain_early).max(axis=-1) <= tolerance
        survivors = [candidate for candidate, fit in zip(self._plain, fits.tolist(), strict=True) if fit]
        for candidate in self._solved(values):
            errors = self._early_measure.errors(region, candidate.evaluate(self._early_points))
            if errors.max() <= tolerance:
                survivors.append(candidate)
        return survivors

    def _solved(self, values: np.ndarray) -> list[SolvedActivation]:
        """Every activation with parameters whose solution exists and is not degenerate."""
        samples = dict(zip(self._samples, values[: len(self._samples)], strict=True))
        found: list[SolvedActivation] = []
        for activation in self._solvable:
            parameters = solve(activation, samples)
            if parameters is not None:
                found.append(SolvedActivation(activation, parameters))
        return found

    def _recognised(
        self, fits: list[tuple[float, SolvedActivation]], tolerance: float, propagates_nan: bool
    ) -> Recognised:
        equal = max(_EQUAL_FACTOR * min(error for error, _ in fits), _EQUAL_FLOOR * tolerance)
        error, best = min((fit for fit in fits if fit[0] <= equal), key=self._simplicity)
        activation, parameters = best.activation, best.parameters
        if activation is None:
            return Recognised("identity", "x", "", 0.0, 0.0, error, {}, propagates_nan)
        binding = activation.onednn
        return Recognised(
            activation.name,
            activation.formula.text,
            binding.algorithm,
            number(binding.alpha, parameters),
            number(binding.beta, parameters),
            error,
            parameters,
            propagates_nan,
        )

    def _simplicity(self, fit: tuple[float, SolvedActivation]) -> tuple[int, float, int]:
        error, candidate = fit
        name = candidate.activation.name if candidate.activation else ""
        return len(candidate.parameters), error, self._order.get(name, 0)


def _clearest(probes: np.ndarray, errors: np.ndarray, wrong: np.ndarray, finite: np.ndarray) -> int:
    """The most convincing disagreement for people: at an ordinary x if there is one, not at 1e-40 or 1e30."""
    size = np.abs(probes)
    for ordinary in ((size >= 0.1) & (size <= 8) & finite, size <= 8, wrong):
        if (wrong & ordinary).any():
            return int(np.argmax(np.where(wrong & ordinary, errors, -1.0)))
    return 0


def solve(activation: Activation, samples: Mapping[float, float]) -> dict[str, float] | None:
    """The parameters, in the kernel's single precision; None: degenerate."""
    environment: dict[str, object] = {"f": samples}
    parameters: dict[str, float] = {}
    for parameter in activation.parameters:
        value = float(np.float32(parameter.solve.closure(environment))) + 0.0  # -0 is 0
        if not np.isfinite(value):
            return None
        parameters[parameter.name] = environment[parameter.name] = value
    if activation.require is not None and not activation.require.closure(parameters):
        return None
    return parameters


def number(formula: Formula | None, parameters: Mapping[str, float]) -> float:
    """The value of a binding's alpha or beta; 0 where the algorithm reads none."""
    return 0.0 if formula is None else float(np.float32(formula.closure(parameters)))
