"""Table proofs: numeric checks of an entry's claims at load time, so that nothing wrong is ever dispatched.

Three claims of the author are checked with the examples of the parameters: the formula is a function worth
recognising, each `solve` inverts it, and the post-op with its numbers computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hlo_dispatch.pattern.agreement import ErrorMeasure
from hlo_dispatch.pattern.algorithms import BINARY, ELTWISE, OPCODES, binary_meaning, meaning
from hlo_dispatch.pattern.probes import fixed_probes
from hlo_dispatch.pattern.recognise import number, solve
from hlo_dispatch.pattern.table import Activation, Binary, short

ProofFailure = tuple[tuple[str, ...], str, str]
"""Path in the entry, problem, advice."""

_POINTS = fixed_probes(())
_ERROR_MEASURE = ErrorMeasure.at(_POINTS)
_ORDINARY = np.flatnonzero((_POINTS > 0) & (_POINTS <= 8))
_OPERANDS = np.array([-3.5, -1.0, 0.25, 2.0, 7.0])
_SAME = 1e-5  # examples are decimal, the post-op's numbers single precision


def proofs(activation: Activation) -> Iterator[ProofFailure]:
    """The claims of an activation that do not hold."""
    examples = {parameter.name: parameter.example for parameter in activation.parameters}
    with np.errstate(all="ignore"):
        yield from _varies(activation, examples)
        yield from _solves(activation, examples)
        yield from _binds(activation, examples)


def binary_proofs(binary: Binary) -> Iterator[ProofFailure]:
    """The claims of a binary that do not hold: opcode, formula, post-op and reversed form must be one function."""
    y, other = np.meshgrid(_OPERANDS, _OPERANDS)
    operands, swapped = {"y": y, "other": other}, {"y": other, "other": y}
    computed = binary_meaning(OPCODES[binary.opcode])
    expected = computed.evaluate(operands)
    if not np.allclose(binary.formula.evaluate(operands), expected, rtol=1e-12):
        yield ("formula",), f"this is not what {binary.opcode} computes", f"that is {computed.text}"
    if not np.allclose(binary_meaning(BINARY[binary.algorithm]).evaluate(operands), expected, rtol=1e-12):
        problem = f"the post-op {binary.algorithm} is {BINARY[binary.algorithm]}"
        yield ("onednn", "algorithm"), problem, f"{binary.opcode} computes {computed.text}"
    backwards = computed.evaluate(swapped)
    if binary.commutative and not np.allclose(backwards, expected):
        yield ("commutative",), f"{binary.opcode} is not commutative", "say how to reverse it with reversed:"
    if binary.reversed is not None:
        first, then = binary.reversed.first, binary.reversed.then
        numbers = {"alpha": number(first.alpha, {}), "beta": number(first.beta, {})}
        after = meaning(first.algorithm).evaluate({"x": y, **numbers})
        if not np.allclose(binary_meaning(BINARY[then]).evaluate({"y": after, "other": other}), backwards):
            problem = f"{first.algorithm} then {then} is not {binary.opcode} of other and y"
            yield ("reversed",), problem, f"they should compute {computed.text} with y and other exchanged"


def _values(activation: Activation, examples: dict[str, float], x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(activation.formula.closure({"x": x, **examples}), x.shape)


def _varies(activation: Activation, examples: dict[str, float]) -> Iterator[ProofFailure]:
    values = _values(activation, examples, _POINTS[np.isfinite(_POINTS)])
    values = values[np.isfinite(values)]
    if values.size == 0:
        yield ("formula",), "the formula is finite nowhere", "correct it"
    elif np.all(values == values[0]):
        yield ("formula",), f"the formula is {short(values[0])} everywhere", "a constant is not an activation"


def _solves(activation: Activation, examples: dict[str, float]) -> Iterator[ProofFailure]:
    points = {point for parameter in activation.parameters for point in parameter.solve.samples}
    samples = {point: float(_values(activation, examples, np.array([point]))[0]) for point in points}
    if activation.require is not None and not activation.require.closure(examples):
        yield ("require",), "the examples themselves are refused", "choose others"
        return
    solved = solve(activation, samples)
    for name, example in examples.items():
        if solved is None or not math.isclose(solved[name], example, rel_tol=1e-6, abs_tol=1e-9):
            got = "no finite number" if solved is None else short(solved[name])
            problem = f"with {name} = {short(example)} this finds {got}"
            yield ("parameters", name, "solve"), problem, "it should invert the formula"


def _binds(activation: Activation, examples: dict[str, float]) -> Iterator[ProofFailure]:
    binding = activation.onednn
    numbers = {"alpha": number(binding.alpha, examples), "beta": number(binding.beta, examples)}
    expected = _values(activation, examples, _POINTS)
    got = meaning(binding.algorithm).closure({"x": _POINTS, **numbers})
    wrong = np.flatnonzero(_ERROR_MEASURE.errors(got, expected) > _SAME)
    if wrong.size == 0:
        return
    ordinary = np.intersect1d(wrong, _ORDINARY)
    choice = ordinary if ordinary.size else wrong
    at = choice[np.argmax(_POINTS[choice])]
    problem = (
        f"at x = {short(float(_POINTS[at]))} the post-op {binding.algorithm} gives {got[at]:.6g}, "
        f"the formula {expected[at]:.6g}"
    )
    yield ("onednn", "algorithm"), problem, f"oneDNN's {binding.algorithm} is {ELTWISE[binding.algorithm]}"
