"""Reduced precision of weights: stores f32 weights in bf16 and multiplies in the processor's fastest type.

A traced function is evaluated again with some of its arguments in bf16 (as integers: weight_only_quantization.py).
The evaluation follows them through data movement, converts, loops, branches and calls to products. There the other
operand is rounded as well if the processor multiplies bf16 (with f32 accumulation); otherwise the weights are widened.
All other users get widened weights: of a table, the rows that were looked up.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.closures import CALLS, bound, evaluated_by
from hlo_dispatch.process.machine import Machine

WIDE = jax.numpy.dtype("float32")
HALF = (jax.numpy.dtype("bfloat16"), jax.numpy.dtype("float16"))
FLOATING = frozenset((WIDE, *HALF))
"""Element types of weights, and of what they are converted to before they are multiplied."""


@dataclass(frozen=True)
class WeightFormat:
    """Storage format of weights."""

    dtype: Any
    is_multiplied: Callable[[Machine], bool]
    """Whether a processor multiplies elements of this type directly, or, of integers, in bf16."""
    group: int = 0
    """For integers, number of elements along the contracted dimension with one scale; 0: all."""


def _has_bf16_arithmetic(machine: Machine) -> bool:
    return machine.has_bf16_arithmetic


WEIGHT_FORMATS = {
    "bf16": WeightFormat(jax.numpy.dtype("bfloat16"), _has_bf16_arithmetic),
    "int8": WeightFormat(jax.numpy.dtype("int8"), _has_bf16_arithmetic),
    # The scales add half a bit to each weight.
    "int4": WeightFormat(jax.numpy.dtype("int4"), _has_bf16_arithmetic, group=64),
}
"""Values of `freeze(..., weights=...)`."""
LEAST_DIMENSIONS = 2

NOT_A_WEIGHT = "it is neither multiplied nor looked up in"
_PRODUCTS = frozenset(("dot_general", "conv_general_dilated"))
LOOKUP = "gather"
_CONVERT = "convert_element_type"
_DATA_MOVEMENT = frozenset(
    ("broadcast_in_dim", "concatenate", "copy", "dynamic_slice", LOOKUP, "reshape", "rev", "slice", "split", "squeeze",
     "transpose")
)  # fmt: skip
"""Primitives whose results are elements of their first operand (of all, for a concatenation)."""


@dataclass(frozen=True)
class Narrowing:
    """Narrowing of weights on one machine."""

    dtype: Any
    """Stored element type."""
    multiplies: bool
    """Whether products multiply in this type, or, of integers, those of many rows in bf16."""
    group: int = 0
    """For integers, number of elements along the contracted dimension with one scale; 0: all."""
    rounds_activations: bool = False
    """Whether the other operands of products with integers are rounded to eight bits (dynamic_quantization.py)."""

    @property
    def is_integer(self) -> bool:
        """Whether the stored type is an integer with scales."""
        return jax.numpy.issubdtype(self.dtype, jax.numpy.integer)

    @classmethod
    def on(cls, machine: Machine, form: str | None, activations: str | None = None) -> Narrowing | None:
        """The narrowing for this format of weights and of activations; None: none."""
        if form is None:
            return None
        found = WEIGHT_FORMATS[form]
        return cls(found.dtype, found.is_multiplied(machine), found.group, activations is not None)


@dataclass(frozen=True)
class NarrowedFunction:
    """A function some of whose arguments have narrower types."""

    function: Callable[..., list[Any]]
    """Takes and returns the values of the jaxpr, narrowed arguments in their narrow type."""
    narrow: frozenset[int]
    """Numbers of the narrowed arguments."""
    widened: frozenset[int]
    """Numbers of the narrowed arguments that are widened for products."""
    integers: frozenset[int] = frozenset()
    """Numbers of further arguments, which the function itself quantizes to integers."""
    kept: Mapping[int, str] = field(default_factory=dict)
    """Arguments that are not narrowed despite their shape and type: number → why not."""
    rounded_products: int = 0
    """Number of products whose other operand is rounded to eight bits."""


def checked_weight_format(weights: str | None) -> str | None:
    """Check the value of `freeze(..., weights=...)`.

    Raises:
        FreezeError: there is no such format.
    """
    if weights is not None and weights not in WEIGHT_FORMATS:
        there_is = ", ".join(map(repr, WEIGHT_FORMATS))
        raise FreezeError(f"weights={weights!r} is no format of weights: None (unchanged), {there_is}")
    return weights


def narrowed(closed: Any, candidates: Collection[int], narrowing: Narrowing) -> NarrowedFunction:
    """Find the weights among the arguments of a closed jaxpr, and narrow them.

    Weights are f32 arrays with two or more dimensions that are operands of a product, a convolution or a lookup.

    Args:
        candidates: numbers of the arguments that may be weights.
    """
    avals = closed.in_avals
    wide = narrowable_arrays(avals, candidates, narrowing)
    candidates = [number for number in wide if avals[number].dtype == WIDE]
    found = Evaluation(candidates, narrowing)
    narrower = {n: jax.ShapeDtypeStruct(avals[n].shape, narrowing.dtype) for n in candidates}
    jax.eval_shape(lambda *args: found.of(closed, args), *(narrower.get(n, aval) for n, aval in enumerate(avals)))
    weights = frozenset(found.weights)
    evaluation = Evaluation(weights, narrowing)
    others = [number for number in wide if number not in weights]
    kept = {n: other_type(avals[n]) if avals[n].dtype != WIDE else NOT_A_WEIGHT for n in others}
    return NarrowedFunction(lambda *args: evaluation.of(closed, args), weights, frozenset(found.widened), kept=kept)


def narrowable_arrays(avals: Sequence[Any], candidates: Collection[int], narrowing: Narrowing) -> list[int]:
    """Numbers of the candidates that have the shape of weights and more bits than the stored type."""
    bits = itemsize_bits(narrowing.dtype)
    return [
        number
        for number in candidates
        if avals[number].ndim >= LEAST_DIMENSIONS
        and avals[number].size
        and jax.numpy.issubdtype(avals[number].dtype, jax.numpy.floating)
        and itemsize_bits(avals[number].dtype) > bits
    ]


def itemsize_bits(dtype: Any) -> int:
    """Bits of an element in memory."""
    of = jax.numpy.iinfo if jax.numpy.issubdtype(dtype, jax.numpy.integer) else jax.numpy.finfo
    return of(dtype).bits


def other_type(aval: Any) -> str:
    """Why an array of this element type is not narrowed."""
    return f"weights of {aval.dtype} are not narrowed"


@dataclass(frozen=True)
class NarrowArray:
    """Abstract floating-point array whose elements are stored in a narrower type."""

    value: Any
    arguments: frozenset[int]
    """Numbers of the arguments that its elements come from."""
    dtype: Any
    """Element type of the abstract array."""
    dims: tuple[int | None, ...] = ()
    """The argument's dimension for each of its own, where that matters; None: one of a lookup's indices."""
    is_looked_up: bool = False
    """Whether its elements are rows that a lookup found."""


class Evaluation:
    """Evaluation of a jaxpr with narrowed arguments."""

    data_movement = _DATA_MOVEMENT
    """Primitives through which narrowed arguments are followed."""

    def __init__(self, narrow: Collection[int], narrowing: Narrowing) -> None:
        self._narrow, self._narrowing = frozenset(narrow), narrowing
        self.weights: set[int] = set()
        """Arguments that are operands of products or lookups."""
        self.widened: set[int] = set()
        """Arguments that were widened for products."""

    def of(self, closed: Any, arguments: Sequence[Any]) -> list[Any]:
        values = [self._narrow_argument(n, a) if n in self._narrow else a for n, a in enumerate(arguments)]
        return self.wide(self._evaluated(closed.jaxpr, closed.consts, values))

    def _narrow_argument(self, number: int, argument: Any) -> NarrowArray:
        return NarrowArray(argument, frozenset((number,)), WIDE)

    def _evaluated(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        return evaluated_by(
            lambda equation, read: self._results(equation, [read(atom) for atom in equation.invars]),
            jaxpr, constants, arguments,
        )  # fmt: skip

    def _called(self, function: Any, arguments: Sequence[Any]) -> list[Any]:
        """Evaluate a callee, a closed jaxpr or not."""
        return self._evaluated(getattr(function, "jaxpr", function), getattr(function, "consts", ()), arguments)

    def _results(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        name = equation.primitive.name
        if not any(isinstance(operand, NarrowArray) for operand in operands):
            return bound(equation, operands)
        if name in _PRODUCTS:
            return self._product(equation, operands)
        if name == _CONVERT and equation.outvars[0].aval.dtype in FLOATING:
            return [replace(operands[0], dtype=equation.outvars[0].aval.dtype)]
        if name in self.data_movement and _is_data_movement(name, operands):
            return self._moved(equation, operands)
        if name in CALLS:
            return self._called(equation.params[CALLS[name]], operands)
        if name in _CONTROL:
            return _CONTROL[name](self, equation, operands)
        return bound(equation, self.wide(operands))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        arguments = _source_arguments(operands)
        self.weights |= arguments
        types = {atom.aval.dtype for atom in (*equation.invars, *equation.outvars)}
        if self._narrowing.multiplies and types == {WIDE} and is_default_precision(equation.params["precision"]):
            narrow = [
                o.value if isinstance(o, NarrowArray) else jax.lax.convert_element_type(o, self._narrowing.dtype)
                for o in operands
            ]
            return bound(equation, narrow, preferred_element_type=WIDE)
        self.widened |= {
            number
            for operand in operands
            if isinstance(operand, NarrowArray) and operand.dtype != self._narrowing.dtype
            for number in operand.arguments
        }
        return bound(equation, self.wide(operands))

    def _moved(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        arguments = _source_arguments(operands)
        if equation.primitive.name == LOOKUP:
            self.weights |= arguments
        dtype = equation.outvars[0].aval.dtype
        return [NarrowArray(value, arguments, dtype) for value in bound(equation, list(map(_value, operands)))]

    def wide(self, values: Sequence[Any]) -> list[Any]:
        """The values, narrow ones widened."""
        return [jax.lax.convert_element_type(v.value, v.dtype) if isinstance(v, NarrowArray) else v for v in values]

    def _row(self, part: Any, whole: Any) -> Any:
        """A row of an operand, narrowed if the operand is."""
        return replace(whole, value=part, dims=whole.dims[1:]) if isinstance(whole, NarrowArray) else part

    def _scan(self, equation: Any, operands: list[Any]) -> list[Any]:
        params, inner = equation.params, equation.params["jaxpr"].jaxpr
        # Parameter names change with jax's releases; operands that are read row by row have one dimension less inside.
        read = sum(out.aval.ndim != in_.aval.ndim for out, in_ in zip(equation.invars, inner.invars, strict=True))
        carried = sum(out.aval.ndim == in_.aval.ndim for out, in_ in zip(equation.outvars, inner.outvars, strict=True))
        known, carry, rows = _split_operands(operands, len(operands) - read - carried, carried)

        def body(carry: Any, row: Any) -> Any:
            results = self.wide(self._called(params["jaxpr"], [*known, *carry, *map(self._row, row, rows)]))
            return results[:carried], results[carried:]

        options = {name: params[name] for name in ("length", "reverse", "unroll")}
        carry, stacked = jax.lax.scan(body, self.wide(carry), list(map(_value, rows)), **options)
        return [*carry, *stacked]

    def _while(self, equation: Any, operands: list[Any]) -> list[Any]:
        params = equation.params
        condition_constants, known, carry = _split_operands(operands, params["cond_nconsts"], params["body_nconsts"])

        # Of a batch of loops each element goes on or not, and keeps its state when it has ended.
        is_batch = params["cond_jaxpr"].out_avals[0].ndim > 0

        def go_on(carry: Any) -> Any:
            return self._called(params["cond_jaxpr"], [*condition_constants, *carry])[0]

        def body(carry: Any) -> Any:
            results = self.wide(self._called(params["body_jaxpr"], [*known, *carry]))
            return list(map(partial(_selected, go_on(carry)), results, carry)) if is_batch else results

        condition = (lambda carry: go_on(carry).any()) if is_batch else go_on
        return jax.lax.while_loop(condition, body, self.wide(carry))

    def _cond(self, equation: Any, operands: list[Any]) -> list[Any]:
        which, *inputs = operands
        branches = equation.params["branches"]
        return jax.lax.switch(which, [lambda branch=b: self.wide(self._called(branch, inputs)) for b in branches])


def _selected(is_new: Any, new: Any, old: Any) -> Any:
    """Of a batch's states, the new ones of some elements."""
    mask = jax.lax.broadcast_in_dim(is_new, new.shape, range(is_new.ndim))
    return jax.lax.select(mask, new, old)


def _split_operands(values: list[Any], first: int, second: int) -> tuple[list[Any], list[Any], list[Any]]:
    """The first ones, the second ones, and the rest."""
    return values[:first], values[first : first + second], values[first + second :]


_CONTROL: dict[str, Callable[[Evaluation, Any, list[Any]], list[Any]]] = {
    "scan": Evaluation._scan,
    "while": Evaluation._while,
    "cond": Evaluation._cond,
}


def _is_data_movement(name: str, operands: Sequence[Any]) -> bool:
    """Whether every element of the result comes from narrowed operands."""
    return all(isinstance(operand, NarrowArray) for operand in (operands if name == "concatenate" else operands[:1]))


def _source_arguments(operands: Sequence[Any]) -> frozenset[int]:
    return frozenset().union(*(operand.arguments for operand in operands if isinstance(operand, NarrowArray)))


def _value(operand: Any) -> Any:
    """The stored value of an operand."""
    return operand.value if isinstance(operand, NarrowArray) else operand


def is_default_precision(precision: Any) -> bool:
    """Whether the precision is the default."""
    precisions = precision if isinstance(precision, tuple) else (precision,)
    return all(one in (None, jax.lax.Precision.DEFAULT) for one in precisions)
