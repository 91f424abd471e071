"""Weights of f32 that are held as integers of eight bits, with a scale for each output of their products.

    x @ w  ~  (x @ q) * s,    s = max |w| along what is summed up / 127,    q = round(w / s)

A traced function is evaluated twice more. First it is seen of which weights that can be said: arrays that are an
operand of products alone, always summed up along the same dimensions, and in between only transposed or taken row by
row. Then those are made integers where the function begins, which depends on nothing but them and so is done once.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hlo_dispatch.freezing.closures import bound
from hlo_dispatch.freezing.narrowing import LEAST_DIMENSIONS, WIDE, Evaluation, Narrow, Narrowed, Narrowing

_LARGEST = 127
_MOVES = frozenset(("copy", "squeeze", "transpose"))


def with_integers(closed: Any, candidates: Collection[int], narrowing: Narrowing) -> Narrowed:
    """Find which arguments of a closed jaxpr can be held so, and have them so.

    Args:
        candidates: numbers of the arguments that may be.
    """
    avals = closed.in_avals
    candidates = [n for n in candidates if avals[n].dtype == WIDE and avals[n].ndim >= LEAST_DIMENSIONS]
    found = _Search(candidates, narrowing)
    jax.eval_shape(lambda *args: found.of(closed, args), *avals)
    along = {number: dims for number, dims in found.summed.items() if number not in found.refused and dims}
    evaluation = _Integers(along, narrowing)
    nothing: frozenset[int] = frozenset()
    return Narrowed(lambda *args: evaluation.of(closed, args), nothing, nothing, frozenset(along))


class _Search(Evaluation):
    """Finds along which of its dimensions an argument is summed up."""

    moves = _MOVES

    def __init__(self, narrow: Collection[int], narrowing: Narrowing) -> None:
        super().__init__(narrow, narrowing)
        self.summed: dict[int, frozenset[int]] = {}
        self.refused: set[int] = set()

    def _narrowed(self, number: int, argument: Any) -> Narrow:
        return Narrow(argument, frozenset((number,)), tuple(range(argument.ndim)))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        places = [place for place, operand in enumerate(operands) if isinstance(operand, Narrow)]
        types = {atom.aval.dtype for atom in (*equation.invars, *equation.outvars)}
        if equation.primitive.name != "dot_general" or len(places) > 1 or types != {WIDE}:
            return bound(equation, self._wide(operands))
        (place,) = places
        narrow = operands[place]
        contracted = equation.params["dimension_numbers"][0][place]
        dims = frozenset(narrow.dims[dimension] for dimension in contracted)
        for number in narrow.arguments:
            if self.summed.setdefault(number, dims) != dims:
                self.refused.add(number)
        return bound(equation, [operand.value if operand is narrow else operand for operand in operands])

    def _moved(self, equation: Any, operands: list[Any]) -> list[Narrow]:
        (narrow,) = operands
        dims = _kept_dims(equation, narrow.dims)
        return [Narrow(value, narrow.arguments, dims) for value in bound(equation, [narrow.value])]

    def _wide(self, values: Sequence[Any]) -> list[Any]:
        for value in values:
            if isinstance(value, Narrow):
                self.refused |= value.arguments
        return [value.value if isinstance(value, Narrow) else value for value in values]


class _Integers(Evaluation):
    """Of a jaxpr, with some of its arguments as pairs of integers and scales."""

    moves = _MOVES

    def __init__(self, along: dict[int, frozenset[int]], narrowing: Narrowing) -> None:
        super().__init__(along, narrowing)
        self._along, self._dtype = along, narrowing.dtype

    def _narrowed(self, number: int, argument: Any) -> Narrow:
        largest = jnp.max(jnp.abs(argument), axis=sorted(self._along[number]), keepdims=True)
        # What is no number stays none, in its scale.
        scale = jnp.where(largest == 0, jnp.ones_like(largest), largest / _LARGEST)
        integers = jnp.clip(jnp.round(argument / scale), -_LARGEST, _LARGEST).astype(self._dtype)
        return Narrow((integers, scale), frozenset((number,)))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        (place,) = (place for place, operand in enumerate(operands) if isinstance(operand, Narrow))
        integers, scale = operands[place].value
        wide = jax.lax.convert_element_type(integers, WIDE)
        (result,) = bound(equation, [*operands[:place], wide, *operands[place + 1 :]])
        return [result * _along_result(scale, equation, place)]

    def _moved(self, equation: Any, operands: list[Any]) -> list[Narrow]:
        (narrow,) = operands
        (integers,), (scale,) = (bound(equation, [value]) for value in narrow.value)
        return [Narrow((integers, scale), narrow.arguments)]

    def _wide(self, values: Sequence[Any]) -> list[Any]:
        return [
            jax.lax.convert_element_type(value.value[0], WIDE) * value.value[1] if isinstance(value, Narrow) else value
            for value in values
        ]


def _kept_dims(equation: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Which of the argument's dimensions the result's are."""
    if equation.primitive.name == "transpose":
        return tuple(dims[number] for number in equation.params["permutation"])
    if equation.primitive.name == "squeeze":
        gone = equation.params["dimensions"]
        return tuple(dim for number, dim in enumerate(dims) if number not in gone)
    return dims


def _along_result(scale: Any, equation: Any, place: int) -> Any:
    """The scale of an operand, of size 1 along what is summed up, as it is multiplied with the product."""
    contracted, batch = (sides[place] for sides in equation.params["dimension_numbers"])
    free = [number for number in range(scale.ndim) if number not in (*contracted, *batch)]
    batches, columns = ([scale.shape[number] for number in numbers] for numbers in (batch, free))
    result = equation.outvars[0].aval
    ones = [1] * (result.ndim - len(batches) - len(columns))
    sizes = [*batches, *ones, *columns] if place else [*batches, *columns, *ones]
    assert math.prod(sizes) == scale.size
    return jax.lax.transpose(scale, (*batch, *free, *contracted)).reshape(sizes)
