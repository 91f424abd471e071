"""Weight-only quantization: f32, bf16 or f16 weights stored as 8-bit or 4-bit integers, with scales.

    x @ w  ~  (x @ q) * s,    s = max |w| along the contracted dimensions / 127,    q = round(w / s)

with 8 bits, one scale for each output of a product. With 4 bits the largest value is 7, too little for a whole
contraction: each group of it has its own scale, and x @ w ~ x @ (q * s). Half-precision operands are widened exactly,
accumulated and scaled in f32, and rounded once. Where the processor multiplies bf16, a product of many rows is bound by
arithmetic: its operands are rounded to bf16, in which integers are exact, as `weights="bf16"` rounds them, or on
request its rows to eight bits (dynamic_quantization.py). A lookup finds rows of integers and their scales,
w[i] ~ q[i] * s[i].

A traced function is evaluated twice more. The first evaluation finds the weights that qualify: operands of products and
lookups alone, always contracted along the same dimensions, with only data movement in between that leaves these
dimensions whole. The second one quantizes them at the start of the function; this depends on weights alone, so the
prologue does it once.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hlo_dispatch.freezing.closures import bound
from hlo_dispatch.freezing.dynamic_quantization import with_rounded_groups
from hlo_dispatch.freezing.reduced_precision import (
    FLOATING,
    HALF,
    LOOKUP,
    NOT_A_WEIGHT,
    WIDE,
    Evaluation,
    NarrowArray,
    NarrowedFunction,
    Narrowing,
    is_default_precision,
    narrowable_arrays,
    other_type,
)

_DATA_MOVEMENT = frozenset(("copy", "dynamic_slice", LOOKUP, "slice", "squeeze", "transpose"))
MAX_EXACT_ROWS = 8
"""Products of so many rows read weights no faster than memory gives them, and round no operand for it."""


def with_integers(
    closed: Any, candidates: Collection[int], tables: Collection[int], narrowing: Narrowing
) -> NarrowedFunction:
    """Find the arguments of a closed jaxpr that can be quantized, and quantize them.

    Args:
        candidates: numbers of the arguments that may be weights.
        tables: numbers of those that may be if they are only looked up in.
    """
    avals = closed.in_avals
    wide = narrowable_arrays(avals, candidates, narrowing)
    found = _Search([number for number in wide if avals[number].dtype in FLOATING], tables, narrowing)
    jax.eval_shape(lambda *args: found.of(closed, args), *avals)
    reasons = {n: found.reason(n) if avals[n].dtype in FLOATING else other_type(avals[n]) for n in wide}
    along = {number: found.scaled_dims(number) for number, reason in reasons.items() if reason is None}
    kept = {number: reason for number, reason in reasons.items() if reason is not None}
    evaluation = _Integers(along, narrowing)
    rounded = sum(number in along for number in found.products_of_many_rows.values())
    nothing: frozenset[int] = frozenset()
    return NarrowedFunction(
        lambda *args: evaluation.of(closed, args), nothing, nothing, frozenset(along), kept,
        rounded if narrowing.rounds_activations else 0,
    )  # fmt: skip


class _Search(Evaluation):
    """First evaluation: finds the dimensions along which each argument has scales."""

    data_movement = _DATA_MOVEMENT

    def __init__(self, narrow: Collection[int], tables: Collection[int], narrowing: Narrowing) -> None:
        super().__init__(narrow, narrowing)
        self._tables = tables
        self._summed: dict[int, frozenset[int]] = {}
        """Number of an argument → dimensions that products sum up."""
        self._rows: dict[int, frozenset[int]] = {}
        """Number of an argument → dimensions of the rows that lookups find."""
        self._indexed = defaultdict[int, set[int | None]](set)
        """Number of an argument → dimensions of which a part is read."""
        self._refused: dict[int, str] = {}
        """Number of an argument → why it cannot be quantized."""
        self.products_of_many_rows: dict[int, int] = {}
        """Identity of a product's equation → number of the argument that it multiplies many rows with."""

    def scaled_dims(self, number: int) -> frozenset[int]:
        """Dimensions of an argument whose elements share scales; empty: there are none."""
        return self._summed.get(number) or self._rows.get(number, frozenset()) - self._indexed[number]

    def reason(self, number: int) -> str | None:
        """Why an argument cannot be quantized; None: it can."""
        if number in self._refused:
            return self._refused[number]
        if number not in self._summed and number not in self._rows:
            return NOT_A_WEIGHT
        if number not in self._summed and number not in self._tables:
            return "it is only looked up in, and closed over"
        dims = self.scaled_dims(number)
        if not dims:
            return "single elements of it are looked up"
        return None if dims.isdisjoint(self._indexed[number]) else "products sum it up along a dimension that is cut"

    def _narrow_argument(self, number: int, argument: Any) -> NarrowArray:
        return NarrowArray(argument, frozenset((number,)), argument.dtype, tuple(range(argument.ndim)))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        operands = _with_one_narrow(self, operands)
        places = [place for place, operand in enumerate(operands) if isinstance(operand, NarrowArray)]
        if not places:
            return bound(equation, operands)
        types = {atom.aval.dtype for atom in (*equation.invars, *equation.outvars)}
        if equation.primitive.name != "dot_general" or len(places) > 1 or not types <= FLOATING:
            self._refuse(operands)
            return bound(equation, super().wide(operands))
        (place,) = places
        narrow = operands[place]
        contracted = equation.params["dimension_numbers"][0][place]
        dims = frozenset(dim for dimension in contracted if (dim := narrow.dims[dimension]) is not None)
        (number,) = narrow.arguments
        if _has_many_rows(equation, 1 - place):
            self.products_of_many_rows[id(equation)] = number
        if len(dims) < len(contracted):
            self._refuse(operands)
        elif self._summed.setdefault(number, dims) != dims:
            self._refused.setdefault(number, "products sum it up along different dimensions")
        return bound(equation, super().wide(operands))

    def _moved(self, equation: Any, operands: list[Any]) -> list[NarrowArray]:
        narrow, *others = operands
        (number,) = narrow.arguments
        self._indexed[number] |= {narrow.dims[dimension] for dimension in _cut_dims(equation)}
        (value,) = bound(equation, [narrow.value, *others])
        if equation.primitive.name == LOOKUP:
            rows = frozenset(dim for dim in narrow.dims if dim is not None)
            self._rows[number] = rows & self._rows.get(number, rows)
        return [_moved(narrow, value, equation)]

    def _row(self, part: Any, whole: Any) -> Any:
        if isinstance(whole, NarrowArray):
            (number,) = whole.arguments
            self._indexed[number].add(whole.dims[0])
        return super()._row(part, whole)

    def wide(self, values: Sequence[Any]) -> list[Any]:
        self._refuse([value for value in values if isinstance(value, NarrowArray) and not value.is_looked_up])
        return super().wide(values)

    def _refuse(self, operands: Sequence[Any]) -> None:
        for operand in operands:
            if isinstance(operand, NarrowArray):
                (number,) = operand.arguments
                self._refused.setdefault(number, "something else than a lookup or a product of two arrays reads it")


class _Integers(Evaluation):
    """Second evaluation: some arguments are pairs of integers and scales."""

    data_movement = _DATA_MOVEMENT

    def __init__(self, along: dict[int, frozenset[int]], narrowing: Narrowing) -> None:
        super().__init__(along, narrowing)
        self._along, self._dtype, self._group = along, narrowing.dtype, narrowing.group
        self._multiplies_bf16, self._rounds_activations = narrowing.multiplies, narrowing.rounds_activations
        self._largest = int(jnp.iinfo(narrowing.dtype).max)

    def _narrow_argument(self, number: int, argument: Any) -> NarrowArray:
        groups = _Groups.of(argument.shape, self._along[number], self._group)
        grouped = jax.lax.convert_element_type(argument, WIDE).reshape(groups.grouped_shape)
        largest = jnp.max(jnp.abs(grouped), axis=groups.axes, keepdims=True)
        # The scale of a NaN is NaN, and so are its values.
        scale = jnp.where(largest == 0, jnp.ones_like(largest), largest / self._largest)
        integers = jnp.clip(jnp.round(grouped / scale), -self._largest, self._largest).astype(self._dtype)
        value = integers.reshape(argument.shape), scale.reshape(groups.of_scales)
        return NarrowArray(value, frozenset((number,)), argument.dtype, tuple(range(argument.ndim)))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        operands = _with_one_narrow(self, operands)
        place = next((place for place, operand in enumerate(operands) if isinstance(operand, NarrowArray)), None)
        if place is None:
            return bound(equation, operands)
        integers, scale = operands[place].value
        contracted = equation.params["dimension_numbers"][0][place]
        groups = math.prod(scale.shape[dimension] for dimension in contracted)
        is_grouped = groups > 1
        wide = _scaled(integers, scale) if is_grouped else jax.lax.convert_element_type(integers, WIDE)
        factors = [wide if number == place else _exact(operand) for number, operand in enumerate(operands)]
        numbers = _in_order_of(place, equation.params["dimension_numbers"])
        if _has_many_rows(equation, 1 - place):
            if self._rounds_activations:
                factors[1 - place] = with_rounded_groups(factors[1 - place], numbers[0][1 - place], groups)
            elif self._multiplies_bf16 and equation.invars[1 - place].aval.dtype in (WIDE, HALF[0]):
                factors = [jax.lax.convert_element_type(factor, HALF[0]) for factor in factors]
        (result,) = bound(equation, factors, preferred_element_type=WIDE, dimension_numbers=numbers)
        scaled = result if is_grouped else result * _along_result(scale, equation, place)
        return [jax.lax.convert_element_type(scaled, equation.outvars[0].aval.dtype)]

    def _moved(self, equation: Any, operands: list[Any]) -> list[NarrowArray]:
        narrow, *others = operands
        (number,) = narrow.arguments
        integers, scale = narrow.value
        # An index out of bounds finds 1 times the value that is asked for.
        fill = {"fill_value": 1} if equation.params.get("fill_value") is not None else {}
        whole = [place for place, dim in enumerate(narrow.dims) if dim in self._along[number]]
        (moved_integers,) = bound(equation, [integers, *others], **fill)
        (moved_scale,) = bound(equation, [scale, *others], **_sizes_of_scales(equation, scale.shape, whole))
        return [_moved(narrow, (moved_integers, moved_scale), equation)]

    def wide(self, values: Sequence[Any]) -> list[Any]:
        return [_dequantized(value) if isinstance(value, NarrowArray) else value for value in values]


def _with_one_narrow(evaluation: Evaluation, operands: Sequence[Any]) -> list[Any]:
    """A product's operands, rows that were looked up widened where both are narrow."""
    if sum(isinstance(operand, NarrowArray) for operand in operands) < len(operands):
        return list(operands)
    return [evaluation.wide([operand])[0] if operand.is_looked_up else operand for operand in operands]


def _in_order_of(place: int, numbers: Any) -> Any:
    """A product's dimension numbers, contracted ones in one operand's order: XLA transposes operands to what it is."""
    contracted, batch = numbers
    pairs = sorted(zip(*contracted, strict=True), key=lambda pair: pair[place])
    return (tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)), batch


class _Groups(NamedTuple):
    """Shapes of weights with the elements of one scale as separate dimensions."""

    grouped_shape: tuple[int, ...]
    """Shape, with each contracted dimension split into groups and elements of a group."""
    axes: tuple[int, ...]
    """Dimensions of `grouped_shape` along which there is one scale."""
    of_scales: tuple[int, ...]
    """Shape of the scales: the number of groups along contracted dimensions."""

    @classmethod
    def of(cls, shape: Sequence[int], summed: Collection[int], group: int) -> _Groups:
        """Groups of `group` elements of the contracted dimensions (0: no groups)."""
        dims = sorted(summed)
        elements = dict(zip(dims, _elements_of_group([shape[dim] for dim in dims], group), strict=True))
        grouped: list[int] = []
        axes: list[int] = []
        scales = list(shape)
        for dim, size in enumerate(shape):
            if dim in elements:
                scales[dim] = size // elements[dim]
                grouped += [scales[dim], elements[dim]]
                axes.append(len(grouped) - 1)
            else:
                grouped.append(size)
        return cls(tuple(grouped), tuple(axes), tuple(scales))


def _elements_of_group(sizes: Sequence[int], group: int) -> list[int]:
    """Elements of one group along each of the contracted dimensions, which are flattened.

    Where groups of that size do not fit, a group is the innermost of several dimensions, or the only one.
    """
    found: list[int] = []
    left = group or math.prod(sizes)
    for size in reversed(sizes):
        if left % size and size % left:
            return [1] * (len(sizes) - 1) + [sizes[-1]]
        found.append(min(left, size))
        left //= found[-1]
    return found[::-1]


def _has_many_rows(equation: Any, place: int) -> bool:
    """Whether arithmetic bounds a product with one matrix of weights, whose other operand is at `place`, and may be
    less precise.
    """
    contracted, batch = (sides[place] for sides in equation.params["dimension_numbers"])
    rows = math.prod(size for number, size in enumerate(equation.invars[place].aval.shape) if number not in contracted)
    return not batch and rows > MAX_EXACT_ROWS and is_default_precision(equation.params["precision"])


def _exact(operand: Any) -> Any:
    """The operand in f32, which is exact."""
    return jax.lax.convert_element_type(operand, WIDE)


def _dequantized(narrow: NarrowArray) -> Any:
    """The array in the type that it has in the program."""
    return jax.lax.convert_element_type(_scaled(*narrow.value), narrow.dtype)


def _scaled(integers: Any, scale: Any) -> Any:
    """Dequantized weights in f32."""
    grouped_shape: list[int] = []
    ones: list[int] = []
    for size, scales in zip(integers.shape, scale.shape, strict=True):
        is_grouped = 1 < scales < size
        grouped_shape += [scales, size // scales] if is_grouped else [size]
        ones += [scales, 1] if is_grouped else [scales]
    wide = jax.lax.convert_element_type(integers, WIDE).reshape(grouped_shape)
    return (wide * scale.reshape(ones)).reshape(integers.shape)


def _moved(narrow: NarrowArray, value: Any, equation: Any) -> NarrowArray:
    """The narrow array behind data movement."""
    is_looked_up = narrow.is_looked_up or equation.primitive.name == LOOKUP
    return replace(narrow, value=value, dims=_moved_dims(equation, narrow.dims), is_looked_up=is_looked_up)


def _moved_dims(equation: Any, dims: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The argument's dimension for each of the result's."""
    name, params = equation.primitive.name, equation.params
    if name == "transpose":
        return tuple(dims[number] for number in params["permutation"])
    if name == "squeeze":
        return tuple(dim for number, dim in enumerate(dims) if number not in params["dimensions"])
    if name != LOOKUP:
        return dims
    numbers = params["dimension_numbers"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    rows = dict(zip(numbers.offset_dims, (dim for n, dim in enumerate(dims) if n not in dropped), strict=True))
    return tuple(rows.get(number) for number in range(equation.outvars[0].aval.ndim))


_SIZES = {"slice": "limit_indices", "dynamic_slice": "slice_sizes", LOOKUP: "slice_sizes"}
"""Primitives that read a part → the parameter with the end or the size of the part along each dimension."""


def _cut_dims(equation: Any) -> list[int]:
    """The operand's dimensions of which data movement reads a part."""
    name, shape = equation.primitive.name, equation.invars[0].aval.shape
    if name not in _SIZES:
        return []
    if name == LOOKUP:
        numbers = equation.params["dimension_numbers"]
        indexed = {*numbers.start_index_map, *numbers.operand_batching_dims}
        sizes = equation.params["slice_sizes"]
        return [n for n, size in enumerate(shape) if n in indexed or sizes[n] != size]
    part = equation.outvars[0].aval.shape
    return [n for n, size in enumerate(shape) if part[n] != size]


def _sizes_of_scales(equation: Any, shape: Sequence[int], whole: Collection[int]) -> dict[str, Any]:
    """Changed parameters of data movement for scales of this shape, where it leaves these dimensions whole."""
    name = _SIZES.get(equation.primitive.name)
    if name is None:
        return {}
    return {name: tuple(shape[n] if n in whole else size for n, size in enumerate(equation.params[name]))}


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
