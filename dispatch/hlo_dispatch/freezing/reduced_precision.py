"""Weights of f32 that are held in fewer bytes: the same function of them, multiplying as the processor does best.

A traced function is evaluated once more with some of its arguments in bf16 (weight_only_quantization.py: made
integers). They are followed through what only moves elements, into loops, branches and called functions, to where they
are multiplied: there the other operand is rounded, too, where the processor multiplies bf16 (sums stay f32), and else
the weights are widened. Whatever else reads them gets them widened.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.closures import CALLS, bound, evaluated_by
from hlo_dispatch.process.machine import Machine

WIDE = jax.numpy.dtype("float32")
HALF = (jax.numpy.dtype("bfloat16"), jax.numpy.dtype("float16"))


@dataclass(frozen=True)
class WeightFormat:
    """As what weights are held."""

    dtype: Any
    is_multiplied: Callable[[Machine], bool]
    """Whether a processor multiplies elements of that type themselves."""
    group: int = 0
    """Of integers: how many that are summed up have one scale; 0: all of them."""


WEIGHT_FORMATS = {
    "bf16": WeightFormat(jax.numpy.dtype("bfloat16"), lambda machine: machine.has_bf16_arithmetic),
    "int8": WeightFormat(jax.numpy.dtype("int8"), lambda machine: False),
    # Half a bit more for each of them.
    "int4": WeightFormat(jax.numpy.dtype("int4"), lambda machine: False, group=64),
}
"""What `freeze(..., weights=...)` may ask for."""
LEAST_DIMENSIONS = 2

_NOT_A_WEIGHT = "it is neither multiplied nor looked up in"
_PRODUCTS = frozenset(("dot_general", "conv_general_dilated"))
_LOOKUP = "gather"
_DATA_MOVEMENT = frozenset(
    ("broadcast_in_dim", "concatenate", "copy", "dynamic_slice", _LOOKUP, "reshape", "rev", "slice", "split", "squeeze",
     "transpose")
)  # fmt: skip
"""Primitives whose results are elements of their first operand (of all, where they are put together)."""


@dataclass(frozen=True)
class Narrowing:
    """What is to be done to weights on one machine."""

    dtype: Any
    """What they are held in."""
    multiplies: bool
    """Whether they are multiplied in it."""
    group: int = 0
    """Of integers: how many that are summed up have one scale; 0: all of them."""

    @property
    def is_integer(self) -> bool:
        """Whether there is a scale beside them."""
        return jax.numpy.issubdtype(self.dtype, jax.numpy.integer)

    @classmethod
    def on(cls, machine: Machine, form: str | None) -> Narrowing | None:
        """None where weights are held as they are."""
        return (
            None
            if form is None
            else cls(
                WEIGHT_FORMATS[form].dtype, WEIGHT_FORMATS[form].is_multiplied(machine), WEIGHT_FORMATS[form].group
            )
        )


@dataclass(frozen=True)
class NarrowedFunction:
    """A function some of whose arguments are narrower than it was written for."""

    function: Callable[..., list[Any]]
    """Takes and returns what the jaxpr does, with the narrower ones among it."""
    narrow: frozenset[int]
    """Numbers of the arguments that are."""
    widened: frozenset[int]
    """Of those, the ones that are widened in order to be multiplied."""
    integers: frozenset[int] = frozenset()
    """Numbers of further arguments, which are given as they were and made integers first."""
    kept: Mapping[int, str] = field(default_factory=dict)
    """Numbers of the arguments that could be held in fewer bytes by their shape and type, and why they are not."""


def checked_weight_format(weights: str | None) -> str | None:
    """What `freeze` was asked for.

    Raises:
        FreezeError: there is no such form.
    """
    if weights is not None and weights not in WEIGHT_FORMATS:
        there_is = ", ".join(map(repr, WEIGHT_FORMATS))
        raise FreezeError(f"weights={weights!r} is nothing that weights can be held as: None (as they are), {there_is}")
    return weights


def narrowed(closed: Any, candidates: Collection[int], narrowing: Narrowing) -> NarrowedFunction:
    """Find which arguments of a closed jaxpr are weights, and have them narrower.

    Weights are arrays of f32 with two or more dimensions that are multiplied (a product, a convolution) or looked up
    in.

    Args:
        candidates: numbers of the arguments that may be.
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
    kept = {n: other_type(avals[n]) if avals[n].dtype != WIDE else _NOT_A_WEIGHT for n in others}
    return NarrowedFunction(lambda *args: evaluation.of(closed, args), weights, frozenset(found.widened), kept=kept)


def narrowable_arrays(avals: Sequence[Any], candidates: Collection[int], narrowing: Narrowing) -> list[int]:
    """Numbers of the candidates that are weights by their shape, and take more bytes than they are to be held in."""
    bits = itemsize_bits(narrowing.dtype)
    return [
        number
        for number in candidates
        if avals[number].ndim >= LEAST_DIMENSIONS
        and jax.numpy.issubdtype(avals[number].dtype, jax.numpy.floating)
        and itemsize_bits(avals[number].dtype) > bits
    ]


def itemsize_bits(dtype: Any) -> int:
    """Bits that an element takes in memory."""
    of = jax.numpy.iinfo if jax.numpy.issubdtype(dtype, jax.numpy.integer) else jax.numpy.finfo
    return of(dtype).bits


def other_type(aval: Any) -> str:
    """Why an array stays as it is whose elements are of a type that is not narrowed."""
    return f"weights of {aval.dtype} are not narrowed"


@dataclass(frozen=True)
class NarrowArray:
    """Stands for an array of f32 whose elements are those of narrower ones."""

    value: Any
    arguments: frozenset[int]
    """Numbers of the arguments that it is made of."""
    dims: tuple[int, ...] = ()
    """Which of the argument's dimensions its own are, where that matters."""


class Evaluation:
    """Of one jaxpr, with some of its arguments narrower."""

    data_movement = _DATA_MOVEMENT
    """Primitives that arguments are followed through."""

    def __init__(self, narrow: Collection[int], narrowing: Narrowing) -> None:
        self._narrow, self._narrowing = frozenset(narrow), narrowing
        self.weights: set[int] = set()
        """Arguments that were multiplied or looked up in."""
        self.widened: set[int] = set()
        """Arguments that were widened in order to be multiplied."""

    def of(self, closed: Any, arguments: Sequence[Any]) -> list[Any]:
        given = [self._cast_array(n, a) if n in self._narrow else a for n, a in enumerate(arguments)]
        return self._wide(self._evaluated(closed.jaxpr, closed.consts, given))

    def _cast_array(self, number: int, argument: Any) -> NarrowArray:
        return NarrowArray(argument, frozenset((number,)))

    def _evaluated(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        return evaluated_by(
            lambda equation, read: self._results(equation, [read(atom) for atom in equation.invars]),
            jaxpr, constants, arguments,
        )  # fmt: skip

    def _called(self, function: Any, arguments: Sequence[Any]) -> list[Any]:
        """Of a jaxpr, closed or not."""
        return self._evaluated(getattr(function, "jaxpr", function), getattr(function, "consts", ()), arguments)

    def _results(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        name = equation.primitive.name
        if not any(isinstance(operand, NarrowArray) for operand in operands):
            return bound(equation, operands)
        if name in _PRODUCTS:
            return self._product(equation, operands)
        if name in self.data_movement and _is_data_movement(name, operands):
            return self._moved(equation, operands)
        if name in CALLS:
            return self._called(equation.params[CALLS[name]], operands)
        if name in _CONTROL:
            return _CONTROL[name](self, equation, operands)
        return bound(equation, self._wide(operands))

    def _product(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        arguments = _source_arguments(operands)
        self.weights |= arguments
        types = {atom.aval.dtype for atom in (*equation.invars, *equation.outvars)}
        if self._narrowing.multiplies and types == {WIDE} and _is_default_precision(equation.params["precision"]):
            narrow = [
                o.value if isinstance(o, NarrowArray) else jax.lax.convert_element_type(o, self._narrowing.dtype)
                for o in operands
            ]
            return bound(equation, narrow, preferred_element_type=WIDE)
        self.widened |= arguments
        return bound(equation, self._wide(operands))

    def _moved(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        arguments = _source_arguments(operands)
        if equation.primitive.name == _LOOKUP:
            self.weights |= arguments
        return [NarrowArray(value, arguments) for value in bound(equation, list(map(_value, operands)))]

    def _wide(self, values: Sequence[Any]) -> list[Any]:
        return [jax.lax.convert_element_type(v.value, WIDE) if isinstance(v, NarrowArray) else v for v in values]

    def _scan(self, equation: Any, operands: list[Any]) -> list[Any]:
        params, inner = equation.params, equation.params["jaxpr"].jaxpr
        # Its parameters say so in another way in each release: what is read row by row has one dimension less inside.
        read = sum(out.aval.ndim != in_.aval.ndim for out, in_ in zip(equation.invars, inner.invars, strict=True))
        carried = sum(out.aval.ndim == in_.aval.ndim for out, in_ in zip(equation.outvars, inner.outvars, strict=True))
        known, carry, rows = _split_operands(operands, len(operands) - read - carried, carried)

        def body(carry: Any, row: Any) -> Any:
            results = self._wide(self._called(params["jaxpr"], [*known, *carry, *map(_row_of, row, rows)]))
            return results[:carried], results[carried:]

        settings = {name: params[name] for name in ("length", "reverse", "unroll")}
        carry, stacked = jax.lax.scan(body, self._wide(carry), list(map(_value, rows)), **settings)
        return [*carry, *stacked]

    def _while(self, equation: Any, operands: list[Any]) -> list[Any]:
        params = equation.params
        asked, known, carry = _split_operands(operands, params["cond_nconsts"], params["body_nconsts"])

        def goes_on(carry: Any) -> Any:
            return self._called(params["cond_jaxpr"], [*asked, *carry])[0]

        def body(carry: Any) -> Any:
            return self._wide(self._called(params["body_jaxpr"], [*known, *carry]))

        return jax.lax.while_loop(goes_on, body, self._wide(carry))

    def _cond(self, equation: Any, operands: list[Any]) -> list[Any]:
        which, *given = operands
        branches = equation.params["branches"]
        return jax.lax.switch(which, [lambda branch=b: self._wide(self._called(branch, given)) for b in branches])


def _split_operands(values: list[Any], first: int, second: int) -> tuple[list[Any], list[Any], list[Any]]:
    """So many, so many, and the rest."""
    return values[:first], values[first : first + second], values[first + second :]


_CONTROL: dict[str, Callable[[Evaluation, Any, list[Any]], list[Any]]] = {
    "scan": Evaluation._scan,
    "while": Evaluation._while,
    "cond": Evaluation._cond,
}


def _is_data_movement(name: str, operands: Sequence[Any]) -> bool:
    """Whether every element of the result is one of narrow operands."""
    return all(isinstance(operand, NarrowArray) for operand in (operands if name == "concatenate" else operands[:1]))


def _source_arguments(operands: Sequence[Any]) -> frozenset[int]:
    return frozenset().union(*(operand.arguments for operand in operands if isinstance(operand, NarrowArray)))


def _value(operand: Any) -> Any:
    return operand.value if isinstance(operand, NarrowArray) else operand


def _row_of(part: Any, whole: Any) -> Any:
    """A row of an operand, standing for what the operand does."""
    return NarrowArray(part, whole.arguments, whole.dims[1:]) if isinstance(whole, NarrowArray) else part


def _is_default_precision(precision: Any) -> bool:
    """Whether nobody asked for more than the usual precision."""
    asked = precision if isinstance(precision, tuple) else (precision,)
    return all(one in (None, jax.lax.Precision.DEFAULT) for one in asked)
