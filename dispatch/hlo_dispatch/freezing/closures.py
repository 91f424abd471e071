"""Closure conversion: arrays that a traced function closes over become arguments, and not constants of the module."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from jax._src import source_info_util
from jax.extend.core import Literal

CALLS = {
    **dict.fromkeys(("jit", "pjit", "closed_call", "checkpoint", "remat", "remat2"), "jaxpr"),
    **dict.fromkeys(("core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}  # fmt: skip
"""Call primitives → the parameter with the callee; custom derivatives do not matter here."""
_LITERAL = 1
"""Maximum elements of an array that stays a constant, which patterns and folding can see."""


def arrays_in(closed: Any) -> list[Any]:
    """Arrays that a closed jaxpr and its callees close over; each once."""
    found: dict[int, Any] = {}
    for constant in closed.consts:
        if getattr(constant, "size", 0) > _LITERAL:
            found.setdefault(id(constant), constant)
    for equation in closed.jaxpr.eqns:
        inner = _called(equation)
        if inner is not None:
            found.update((id(constant), constant) for constant in arrays_in(inner))
    return list(found.values())


def evaluated(
    closed: Any, array_for: Callable[[Any], Any], arguments: Sequence[Any], replaced: Collection[int]
) -> list[Any]:
    """Evaluate a jaxpr with replaced constants.

    Args:
        array_for: returns the replacement of a constant.
        replaced: ids of the constants with a replacement.
    """
    constants = [array_for(constant) if id(constant) in replaced else constant for constant in closed.consts]

    def results(equation: Any, read: Read) -> Sequence[Any]:
        operands = [read(atom) for atom in equation.invars]
        inner = _called(equation)
        if inner is not None and any(id(constant) in replaced for constant in arrays_in(inner)):
            return evaluated(inner, array_for, operands, replaced)
        return bound(equation, operands)

    return evaluated_by(results, closed.jaxpr, constants, arguments)


Read = Callable[[Any], Any]
"""Returns the value of a variable or literal."""


def evaluated_by(
    results: Callable[[Any, Read], Sequence[Any]], jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]
) -> list[Any]:
    """Evaluate a jaxpr with the caller's rule for each equation."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        values.update(zip(equation.outvars, results(equation, read), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def bound(equation: Any, operands: Sequence[Any], **changed: Any) -> Sequence[Any]:
    """Bind one equation's primitive to these operands, with changed parameters."""
    parameters = equation.primitive.get_bind_params(equation.params)
    # Before jax 0.12 functions were separate from the other parameters.
    functions, parameters = parameters if isinstance(parameters, tuple) else ((), parameters)
    parameters = {**parameters, **changed}
    written = equation.source_info
    names = source_info_util.current_name_stack() + written.name_stack
    with source_info_util.user_context(written.traceback, name_stack=names), equation.ctx.manager:
        result = equation.primitive.bind(*functions, *operands, **parameters)
    return result if equation.primitive.multiple_results else [result]


def _called(equation: Any) -> Any | None:
    """The closed jaxpr of a jitted callee; others take what they close over as operands."""
    return equation.params["jaxpr"] if equation.primitive.name in ("jit", "pjit") else None
