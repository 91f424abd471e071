"""Arrays that a traced function closes over, as arguments: as constants they would be copied into the module."""

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
"""Primitives that call a function, and where it is; what it is under a derivative does not matter here."""
_LITERAL = 1
"""Elements; what has no more stays a constant, which patterns and folding can see."""


def arrays_in(closed: Any) -> list[Any]:
    """Arrays that a closed jaxpr, or one that it calls, closes over; each once."""
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
    """The jaxpr's results, with something in the place of what it closes over.

    Args:
        array_for: what stands for a constant.
        replaced: ids of the constants that something stands for.
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
"""The value of a variable or a literal."""


def evaluated_by(
    results: Callable[[Any, Read], Sequence[Any]], jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]
) -> list[Any]:
    """The jaxpr's results, those of each of its equations by a rule of the caller's."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        values.update(zip(equation.outvars, results(equation, read), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def bound(equation: Any, operands: Sequence[Any], **changed: Any) -> Sequence[Any]:
    """The results of one equation with these operands; parameters of its primitive may be other ones."""
    parameters = equation.primitive.get_bind_params(equation.params)
    # Until jax 0.12 the functions among them came apart.
    functions, parameters = parameters if isinstance(parameters, tuple) else ((), parameters)
    parameters = {**parameters, **changed}
    written = equation.source_info
    names = source_info_util.current_name_stack() + written.name_stack
    with source_info_util.user_context(written.traceback, name_stack=names), equation.ctx.manager:
        result = equation.primitive.bind(*functions, *operands, **parameters)
    return result if equation.primitive.multiple_results else [result]


def _called(equation: Any) -> Any | None:
    """The closed jaxpr of a jitted function that is called; others take what they close over as operands."""
    return equation.params["jaxpr"] if equation.primitive.name in ("jit", "pjit") else None
