"""Buffer donation: arguments that the frozen function's own jit donates, whose memory is reused for results.

A language model's KV cache is as large as a layer and changes by a row in each call. A copy costs more than the
computation; `jax.jit(f, donate_argnums=...)` is how a user avoids it.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections import Counter
from typing import Any

import jax


def donated_arguments(closed: Any, leading: int, args: tuple[Any, ...]) -> tuple[int, ...]:
    """Numbers of the positional arguments whose leaves are all donated to a jitted function inside.

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
    """Numbers of the leaves of these arguments among all leaves."""
    counts = [len(jax.tree.leaves(argument)) for argument in args]
    return [leaf for number in numbers for leaf in range(sum(counts[:number]), sum(counts[: number + 1]))]


def _donated_variables(jaxpr: Any) -> set[Any]:
    """Variables with a single use, by a function to which they are donated."""
    uses = Counter(id(atom) for equation in jaxpr.eqns for atom in equation.invars)
    uses.update(id(atom) for atom in jaxpr.outvars)
    return {
        atom
        for equation in jaxpr.eqns
        for atom, is_donated in zip(equation.invars, equation.params.get("donated_invars", ()), strict=False)
        if is_donated and uses[id(atom)] == 1
    }
