"""Weight-only quantization: f32, bf16 or f16 weights stored as 8-bit or 4-bit integers, with scales.

    x @ w  ~  (x @ q) * s,    s = max |w| along the contracted dimension / 127,    q = round(w / s)

with 8 bits, one scale for each output of a product. With 4 bits the largest value is 7, too little for a whole
contracted dimension: each group of it has its own scale, and x @ w ~ x @ (q * s). Half-precision operands are widened
exactly, accumulated and scaled in f32, and rounded once.

A traced function is evaluated twice more. The first evaluation finds the weights that qualify: operands of products
alone, always contracted along the same dimensions, with only transposes and row reads in between. The second one
quantizes them at the start of the function; this depends on weights alone, so the prologue does it once.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hlo_dispatch.freezing.closures import bound
from hlo_dispatch.freezing.reduced_precision import (
    HALF,
    WIDE,
    Evaluation,
    NarrowArray,
    NarrowedFunction,
    Narrowing,
    narrowable_arrays,
    other_type,
)

_TYPES = frozenset((WIDE, *HALF))
"""Element types of weights that can be quantized, and of the other operand."""
_DATA_MOVEMENT = frozenset(("copy", "squeeze", "transpose"))


def with_integers(closed: Any, candidates: Collection[int], narrowing: Narrowing) -> NarrowedFunction:
    """Find the arguments of a closed jaxpr that can be quantized, and quantize them.

    Args:
        candidates: numbers of the arguments that may be weights.
    """
    avals = closed.in_avals
    wide = narrowable_arrays(avals, candidates, narrowing)
    found = _Search([number for number in wide if avals[number].dtype in _TYPES], narrowing)
    jax.eval_shape(lambda *args: found.of(closed, args), *avals)
    along = {number: dims for number, dims in found.summed.items() if number not in found.refused and dims}
    kept = {n: found.reason(n) if avals[n].dtype in _TYPES else other_type(avals[n]) for n in wide if n not in along}
    evaluation = _Integers(along, narrowing)
    nothing: frozenset[int] = frozenset()
    return NarrowedFunction(lambda *args: evaluation.of(closed, args), nothing, nothing, frozenset(along), kept)


class _Search(Evaluation):
    """First evaluation: finds the contracted dimensions of each argument."""

    data_movement = _DATA_MOVEMENT

    def __init__(self, narrow: Collection[int], narrowing: Narrowing) -> None:
        super().__init__(narrow, narrowing)
        self.summed: dict[int, frozenset[int]] = {}
        self.refused: dict[int, str] = {}
        """Number of an argument → why it cannot be quantized."""

    def reason(self, number: int) -> str:
        """Why an argument cannot be quantized."""
        return self.refused.get(number, "it is in no product")

    def _narrow_argument(self, number: int, argument: Any) -> NarrowArray:
        return NarrowArray(argument, frozenset((number,)), tuple(range(argument.ndim)))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        places = [place for place, operand in enumerate(operands) if isinstance(operand, NarrowArray)]
        types = {atom.aval.dtype for atom in (*equation.invars, *equation.outvars)}
        if equation.primitive.name != "dot_general" or len(places) > 1 or not types <= _TYPES:
            return bound(equation, self._wide(operands))
        (place,) = places
        narrow = operands[place]
        contracted = equation.params["dimension_numbers"][0][place]
        dims = frozenset(narrow.dims[dimension] for dimension in contracted)
        for number in narrow.arguments:
            if self.summed.setdefault(number, dims) != dims:
                self.refused.setdefault(number, "products sum it up along different dimensions")
        return bound(equation, [operand.value if operand is narrow else operand for operand in operands])

    def _moved(self, equation: Any, operands: list[Any]) -> list[NarrowArray]:
        (narrow,) = operands
        dims = _kept_dims(equation, narrow.dims)
        return [NarrowArray(value, narrow.arguments, dims) for value in bound(equation, [narrow.value])]

    def _wide(self, values: Sequence[Any]) -> list[Any]:
        for value in values:
            if isinstance(value, NarrowArray):
                for number in value.arguments:
                    self.refused.setdefault(number, "something else than a product of two arrays reads it")
        return [value.value if isinstance(value, NarrowArray) else value for value in values]


class _Integers(Evaluation):
    """Second evaluation: some arguments are pairs of integers and scales."""

    data_movement = _DATA_MOVEMENT

    def __init__(self, along: dict[int, frozenset[int]], narrowing: Narrowing) -> None:
        super().__init__(along, narrowing)
        self._along, self._dtype, self._group = along, narrowing.dtype, narrowing.group
        self._largest = int(jnp.iinfo(narrowing.dtype).max)

    def _narrow_argument(self, number: int, argument: Any) -> NarrowArray:
        groups = _Groups.of(argument.shape, self._along[number], self._group)
        grouped = jax.lax.convert_element_type(argument, WIDE).reshape(groups.grouped_shape)
        largest = jnp.max(jnp.abs(grouped), axis=groups.axes, keepdims=True)
        # The scale of a NaN is NaN, and so are its values.
        scale = jnp.where(largest == 0, jnp.ones_like(largest), largest / self._largest)
        integers = jnp.clip(jnp.round(grouped / scale), -self._largest, self._largest).astype(self._dtype)
        return NarrowArray((integers.reshape(argument.shape), scale.reshape(groups.of_scales)), frozenset((number,)))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        (place,) = (place for place, operand in enumerate(operands) if isinstance(operand, NarrowArray))
        integers, scale = operands[place].value
        contracted = equation.params["dimension_numbers"][0][place]
        is_grouped = any(scale.shape[dimension] > 1 for dimension in contracted)
        wide = _scaled(integers, scale) if is_grouped else jax.lax.convert_element_type(integers, WIDE)
        exact = [wide if number == place else _exact(operand) for number, operand in enumerate(operands)]
        (result,) = bound(equation, exact, preferred_element_type=WIDE)
        scaled = result if is_grouped else result * _along_result(scale, equation, place)
        return [jax.lax.convert_element_type(scaled, equation.outvars[0].aval.dtype)]

    def _moved(self, equation: Any, operands: list[Any]) -> list[NarrowArray]:
        (narrow,) = operands
        (integers,), (scale,) = (bound(equation, [value]) for value in narrow.value)
        return [NarrowArray((integers, scale), narrow.arguments)]

    def _wide(self, values: Sequence[Any]) -> list[Any]:
        return [_scaled(*value.value) if isinstance(value, NarrowArray) else value for value in values]


class _Groups(NamedTuple):
    """Shapes of weights with the elements of one scale as separate dimensions."""

    grouped_shape: tuple[int, ...]
    """Shape, with a dimension split into groups and elements of a group, where there are groups."""
    axes: tuple[int, ...]
    """Dimensions of `grouped_shape` along which there is one scale."""
    of_scales: tuple[int, ...]
    """Shape of the scales: 1 or the number of groups along contracted dimensions."""

    @classmethod
    def of(cls, shape: Sequence[int], summed: Collection[int], group: int) -> _Groups:
        """Groups of `group` elements along a single, divisible contracted dimension (0: no groups)."""
        scales = tuple(1 if dim in summed else size for dim, size in enumerate(shape))
        dim = min(summed)
        if not group or len(summed) > 1 or shape[dim] % group:
            return cls(tuple(shape), tuple(sorted(summed)), scales)
        count = shape[dim] // group
        return cls(
            (*shape[:dim], count, group, *shape[dim + 1 :]), (dim + 1,), (*scales[:dim], count, *scales[dim + 1 :])
        )


def _exact(operand: Any) -> Any:
    """The operand in f32, which is exact."""
    return jax.lax.convert_element_type(operand, WIDE)


def _scaled(integers: Any, scale: Any) -> Any:
    """Dequantized weights."""
    grouped_shape: list[int] = []
    ones: list[int] = []
    for size, scales in zip(integers.shape, scale.shape, strict=True):
        is_grouped = 1 < scales < size
        grouped_shape += [scales, size // scales] if is_grouped else [size]
        ones += [scales, 1] if is_grouped else [scales]
    wide = jax.lax.convert_element_type(integers, WIDE).reshape(grouped_shape)
    return (wide * scale.reshape(ones)).reshape(integers.shape)


def _kept_dims(equation: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The argument's dimension for each of the result's."""
    if equation.primitive.name == "transpose":
        return tuple(dims[number] for number in equation.params["permutation"])
    if equation.primitive.name == "squeeze":
        squeezed = equation.params["dimensions"]
        return tuple(dim for number, dim in enumerate(dims) if number not in squeezed)
    return dims


def _along_result(scale: Any, equation: Any, place: int) -> Any:
    """An operand's scale, of size 1 along contracted dimensions, in the shape that broadcasts with the product."""
    contracted, batch = (sides[place] for sides in equation.params["dimension_numbers"])
    free = [number for number in range(scale.ndim) if number not in (*contracted, *batch)]
    batches, columns = ([scale.shape[number] for number in numbers] for numbers in (batch, free))
    result = equation.outvars[0].aval
    ones = [1] * (result.ndim - len(batches) - len(columns))
    sizes = [*batches, *ones, *columns] if place else [*batches, *columns, *ones]
    assert math.prod(sizes) == scale.size
    return jax.lax.transpose(scale, (*batch, *free, *contracted)).reshape(sizes)
