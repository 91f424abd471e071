"""Gated unit splitting: gated linear units (GLU, GEGLU, SwiGLU) whose halves come from one product become two products.

    a, g = split(x @ w + b);  a * f(g)    is    (x @ w_a + b_a) * f(x @ w_g + b_g)

With one product XLA writes all columns to memory, and a loop reads them again, half of them for `f`. With two, each
kernel has its part as epilogue: the gate's kernel `f`, the other one the multiplication. The weights are split once,
since they are frozen; otherwise each call would copy them.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Literal

from hlo_dispatch.freezing.closures import CALLS, Read, bound, evaluated_by

_ELEMENTWISE = frozenset(
    ("abs", "add", "convert_element_type", "copy", "div", "erf", "erfc", "exp", "exp2", "expm1", "integer_pow", "log",
     "log1p", "logistic", "max", "min", "mul", "neg", "pow", "reduce_precision", "select_n", "sign", "sqrt", "square",
     "sub", "tanh")
)  # fmt: skip
_ROUNDING = frozenset(("convert_element_type", "reduce_precision"))
_CALLER = object()
"""User of the values that are returned."""


def may_have_gated_units(closed: Any) -> bool:
    """Whether a closed jaxpr halves any value; a quick test."""
    return any(_halves(equation) for equation in _equations(closed.jaxpr))


def with_split_products(closed: Any, frozen: int) -> Callable[..., list[Any]] | None:
    """The function of a closed jaxpr with split gated units; None where it has none.

    Args:
        frozen: number of leading arguments that are weights.
    """
    flat = jax.make_jaxpr(lambda *args: _inlined(closed, args))(*closed.in_avals)
    units = _units(flat.jaxpr, frozen)
    return (lambda *args: _evaluated(flat, units, args)) if units else None


@dataclass(frozen=True)
class _ProductSlice:
    """One half of a gated unit: its columns of the product, and how to recompute it with these columns alone."""

    product: Any
    """The product's equation."""
    epilogue: tuple[tuple[Any, int], ...]
    """Equations between product and slice: (equation, place of the operand)."""
    start: int
    end: int

    def computed(self, read: Read) -> Any:
        source, weights = map(read, self.product.invars)
        (contracted,) = self.product.params["dimension_numbers"][0][1]
        weights = jax.lax.slice_in_dim(weights, self.start, self.end, axis=1 - contracted)
        (value,) = bound(self.product, [source, weights])
        for equation, place in self.epilogue:
            operands = [value if n == place else self._sliced(read(atom)) for n, atom in enumerate(equation.invars)]
            (value,) = bound(equation, operands)
        return value

    def _sliced(self, other: Any) -> Any:
        if jax.numpy.ndim(other) == 0 or other.shape[-1] == 1:
            return other
        return jax.lax.slice_in_dim(other, self.start, self.end, axis=other.ndim - 1)


_GatedUnits = dict[int, dict[Any, _ProductSlice]]
"""Id of an equation that splits or slices → its results and the product slice of each."""


def _evaluated(flat: Any, units: _GatedUnits, arguments: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr with split gated units. Dead values are evaluated, too: XLA eliminates them."""

    def results(equation: Any, read: Read) -> Sequence[Any]:
        parts = units.get(id(equation))
        if parts is not None:
            return [parts[result].computed(read) for result in equation.outvars]
        return bound(equation, [read(atom) for atom in equation.invars])

    return evaluated_by(results, flat.jaxpr, flat.consts, arguments)


def _inlined(closed: Any, arguments: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr with calls inlined: a gated unit may begin in one function and end in another."""

    def results(equation: Any, read: Read) -> Sequence[Any]:
        operands = [read(atom) for atom in equation.invars]
        called = CALLS.get(equation.primitive.name)
        return bound(equation, operands) if called is None else _inlined(equation.params[called], operands)

    return evaluated_by(results, getattr(closed, "jaxpr", closed), getattr(closed, "consts", ()), arguments)


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        called = CALLS.get(equation.primitive.name)
        if called is not None:
            inner = equation.params[called]
            yield from _equations(getattr(inner, "jaxpr", inner))


def _halves(equation: Any) -> list[tuple[Any, int, int]]:
    """Results that are one half of the operand's last dimension: (result, begin, end)."""
    name, params = equation.primitive.name, equation.params
    if name not in ("slice", "split") or not equation.invars[0].aval.ndim:
        return []
    shape = equation.invars[0].aval.shape
    last, half = len(shape) - 1, shape[-1] // 2
    if shape[-1] % 2 or any(result.aval.shape != (*shape[:-1], half) for result in equation.outvars):
        return []
    if name == "split":
        return [(result, number * half, (number + 1) * half) for number, result in enumerate(equation.outvars)]
    start = params["start_indices"][last]
    is_dense = params["strides"] is None or set(params["strides"]) == {1}
    return [(equation.outvars[0], start, start + half)] if is_dense and start in (0, half) else []


def _units(jaxpr: Any, frozen: int) -> _GatedUnits:
    """The gated units of a jaxpr without calls."""
    users: dict[Any, list[Any]] = defaultdict(list)
    made_by: dict[Any, Any] = {}
    for equation in jaxpr.eqns:
        made_by.update(dict.fromkeys(equation.outvars, equation))
        for atom in dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, Literal)):
            users[atom].append(equation)
    for atom in jaxpr.outvars:
        if not isinstance(atom, Literal):
            users[atom].append(_CALLER)
    known = _frozen(jaxpr, frozen)
    found: _GatedUnits = {}
    for value in list(users):
        if _CALLER in users[value] or not all(_halves(user) for user in users[value]):
            continue
        cuts = [(id(user), *half) for user in users[value] for half in _halves(user)]
        if len(cuts) != 2 or cuts[0][2] == cuts[1][2]:
            continue
        chain = _producing_product(value, made_by, users, known)
        if chain is None or not _are_multiplied_together(cuts[0][1], cuts[1][1], users, known):
            continue
        product, epilogue = chain
        for user, result, start, end in cuts:
            found.setdefault(user, {})[result] = _ProductSlice(product, epilogue, start, end)
    return found


def _frozen(jaxpr: Any, count: int) -> set[Any]:
    """Static values: they depend on weights and constants alone."""
    known = {*jaxpr.constvars, *jaxpr.invars[:count]}
    for equation in jaxpr.eqns:
        if all(isinstance(atom, Literal) or atom in known for atom in equation.invars):
            known.update(equation.outvars)
    return known


def _producing_product(
    value: Any, made_by: dict[Any, Any], users: dict[Any, list[Any]], known: set[Any]
) -> tuple[Any, tuple[tuple[Any, int], ...]] | None:
    """The product with frozen weights that computes `value`, and the bias and roundings after it; None: there is none.

    The intermediate values must have no other users.
    """
    epilogue: list[tuple[Any, int]] = []
    while value in made_by:
        equation = made_by[value]
        name = equation.primitive.name
        if name == "dot_general":
            (_, contracted), batch = equation.params["dimension_numbers"]
            weights = equation.invars[1]
            is_plain = not any(batch) and len(contracted) == 1 and weights.aval.ndim == 2
            return (equation, tuple(reversed(epilogue))) if is_plain and weights in known else None
        if name == "add":
            place = next((n for n, atom in enumerate(equation.invars) if not _is_bias(atom, known)), 0)
            if not _is_bias(equation.invars[1 - place], known):
                return None
        elif name in _ROUNDING:
            place = 0
        else:
            return None
        epilogue.append((equation, place))
        columns, value = value.aval.shape[-1], equation.invars[place]
        # A product with one column may be broadcast along the columns of a bias.
        if isinstance(value, Literal) or users[value] != [equation] or value.aval.shape[-1:] != (columns,):
            return None
    return None


def _is_bias(atom: Any, known: set[Any]) -> bool:
    """Whether an operand is static, such as a bias."""
    return isinstance(atom, Literal) or atom in known


def _are_multiplied_together(one: Any, other: Any, users: dict[Any, list[Any]], known: set[Any]) -> bool:
    """Whether both halves, or elementwise functions of each, are multiplied with each other."""
    others = _elementwise_functions_of(other, users, known)
    readers = [
        user for value in _elementwise_functions_of(one, users, known) for user in users[value] if user is not _CALLER
    ]
    return any(
        user.primitive.name == "mul" and any(atom in others for atom in user.invars if not isinstance(atom, Literal))
        for user in readers
    )


def _elementwise_functions_of(half: Any, users: dict[Any, list[Any]], known: set[Any]) -> set[Any]:
    """Values computed elementwise from a half and static values."""
    found, pending = {half}, [half]
    while pending:
        for user in users[pending.pop()]:
            if user is _CALLER or user.primitive.name not in _ELEMENTWISE or user.outvars[0] in found:
                continue
            if all(isinstance(atom, Literal) or atom in found or atom in known for atom in user.invars):
                found.add(user.outvars[0])
                pending.append(user.outvars[0])
    return found
