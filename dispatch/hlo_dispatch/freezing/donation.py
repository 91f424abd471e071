"""Arguments that the frozen function's own jit takes over: their memory becomes that of results.

A language model's cache is as large as a layer and changes by a line in each call. Copied, it costs more than what is
computed with it; `jax.jit(f, donate_argnums=...)` is how a user says that it need not be.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections import Counter
from typing import Any

import jax


def donated_arguments(closed: Any, leading: int, args: tuple[Any, ...]) -> tuple[int, ...]:
    """Numbers of the positional arguments that a jitted function inside takes over whole.

    Args:
        closed: the jaxpr of a function of `leading` frozen leaves, then those of `args`.
    """
    donated = _donated_variables(closed.jaxpr)
    found: list[int] = []
    begin = leading
    for number, argument in enumerate(args):
        end = begin + len(jax.tree.leaves(argument))
        variables = closed.jaxpr.invars[begin:end]
        if variables and all(variable in donated for variable in variables):
            found.append(number)
        begin = end
    return tuple(found)


def leaves_of(numbers: tuple[int, ...], args: tuple[Any, ...]) -> list[int]:
    """Numbers of their leaves among all leaves of the arguments."""
    counts = [len(jax.tree.leaves(argument)) for argument in args]
    return [leaf for number in numbers for leaf in range(sum(counts[:number]), sum(counts[: number + 1]))]


def _donated_variables(jaxpr: Any) -> set[Any]:
    """Variables that are given to nobody but one function, which takes them over."""
    uses = Counter(id(atom) for equation in jaxpr.eqns for atom in equation.invars)
    uses.update(id(atom) for atom in jaxpr.outvars)
    return {
        atom
        for equation in jaxpr.eqns
        for atom, is_donated in zip(equation.invars, equation.params.get("donated_invars", ()), strict=False)
        if is_donated and uses[id(atom)] == 1
    }
