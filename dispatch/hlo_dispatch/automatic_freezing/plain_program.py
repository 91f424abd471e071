"""Plain program: what a call without frozen arguments runs, JAX's own or one that forwards donated arguments."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.automatic_freezing.eligibility import is_freezable
from hlo_dispatch.automatic_freezing.traced_call import donated_flags, is_shared
from hlo_dispatch.freezing.signature import signature

_DONATING = ("donate_argnums", "donate_argnames")
_as_result = jax.jit(lambda leaf: leaf)


class PlainProgram:
    """The jitted function as it is."""

    forwarded: tuple[int, ...] = ()
    """Numbers of the leaves that are results as they are."""

    def __init__(self, jitted: Any) -> None:
        self._jitted = jitted

    def __call__(self, call: Call) -> Any:
        """The program's results, for `finished`."""
        return self._jitted(*call.args, **call.kwargs)

    def trace(self, call: Call) -> Any:
        """The program's traced form, which JAX remembers from a call of this signature."""
        return self._jitted.trace(*call.args, **call.kwargs)

    def takes(self, call: Call) -> bool:
        """Whether `finished` makes the call's value of this program's results; otherwise JAX's own has to run."""
        return True

    def finished(self, results: Any, call: Call) -> Any:
        """The value of a call, of the results of this program or of a frozen one of it."""
        return results


class ForwardingProgram(PlainProgram):
    """A program whose forwarded arguments, donated and returned as they are, are neither donated nor results.

    The caller gets the same objects back, as Keras' `predict` does with its weights, and passes them again.
    """

    def __init__(self, jitted: Any, program: Any, forwarded: Sequence[int]) -> None:
        """
        Args:
            jitted: JAX's own function.
            program: a jitted function of leaves that returns `_Results`.
        """
        super().__init__(jitted)
        self._program, self.forwarded = program, tuple(forwarded)

    def __call__(self, call: Call) -> Any:
        return self._program(*call.leaves)

    def trace(self, call: Call) -> Any:
        return self._program.trace(*call.leaves)

    def takes(self, call: Call) -> bool:
        leaves = call.leaves
        if any(isinstance(leaves[n], jax.Array) and leaves[n].is_deleted() for n in self.forwarded):
            return False
        return not is_shared(leaves, self.forwarded)  # JAX does not donate what another argument is, too

    def finished(self, results: Any, call: Call) -> Any:
        structure, sources = results.places
        others, leaves = iter(results.others), call.leaves
        return structure.unflatten([next(others) if n is None else _result(leaves[n]) for n in sources])


def plain_program(
    function: Callable[..., Any], jitted: Any, options: Mapping[str, Any], form: CallForm, call: Call, smallest: int
) -> PlainProgram:
    """The plain program of the calls of one structure; traces the function where it donates arguments.

    Args:
        call: their first one.
        smallest: bytes of forwarded leaves from which on forwarding them is worth a program.

    Raises:
        Exception: what tracing the function raises.
    """
    if all(options.get(name) in (None, (), []) for name in _DONATING):
        return PlainProgram(jitted)
    traced = jitted.trace(*call.args, **call.kwargs)
    forwarded = forwarded_leaves(traced, call.leaves)
    if sum(call.leaves[number].nbytes for number in forwarded) < smallest or len(jax.devices()) > 1:
        return PlainProgram(jitted)
    flags = donated_flags(traced)
    donated = tuple(number for number, is_donated in enumerate(flags) if is_donated and number not in forwarded)
    rebuilt = form.rebuilding(call.args, call.kwargs)
    known = {signature(tuple(call.leaves), {}): traced}
    """The function traced for the first call, which is traced once."""

    def of_leaves(*leaves: Any) -> _Results:
        first = known.pop(signature(leaves, {}), None)
        if first is None:
            args, kwargs = rebuilt(leaves)
            results, structure = jax.tree.flatten(function(*args, **kwargs))
        else:
            results, structure = jaxpr_as_fun(first.jaxpr)(*leaves), first.out_tree
        numbers = {id(leaves[number]): number for number in forwarded}
        sources: list[int | None] = [numbers.pop(id(result), None) for result in results]
        others = [result for result, number in zip(results, sources, strict=True) if number is None]
        return _Results(others, (structure, tuple(sources)))

    of_leaves.__name__ = of_leaves.__qualname__ = getattr(jitted, "__name__", "function")
    keep_unused = bool(options.get("keep_unused"))
    program = jax.jit(of_leaves, donate_argnums=donated, keep_unused=keep_unused)
    return ForwardingProgram(jitted, program, forwarded)


def forwarded_leaves(traced: Any, leaves: Sequence[Any]) -> list[int]:
    """Numbers of the leaves that are donated, and results as they are, once each."""
    closed = traced.jaxpr
    if closed.effects or len(closed.in_avals) != len(leaves):
        return []
    uses = Counter(id(variable) for variable in closed.jaxpr.outvars)
    flags = donated_flags(traced)
    return [
        number
        for number, variable in enumerate(closed.jaxpr.invars)
        if flags[number] and uses[id(variable)] == 1 and is_freezable(leaves[number])
    ]


@jax.tree_util.register_pytree_node_class
class _Results:
    """Results of a program without the forwarded arguments."""

    def __init__(self, others: list[Any], places: tuple[Any, tuple[int | None, ...]]) -> None:
        """
        Args:
            places: structure of all results, and for each the number of the leaf that it is, or None.
        """
        self.others, self.places = others, places

    def tree_flatten(self) -> tuple[list[Any], tuple[Any, tuple[int | None, ...]]]:
        return self.others, self.places

    @classmethod
    def tree_unflatten(cls, places: tuple[Any, tuple[int | None, ...]], others: Any) -> _Results:
        return cls(others, places)


def _result(leaf: Any) -> Any:
    """A leaf as a result: an array of JAX's is its own."""
    return leaf if isinstance(leaf, jax.Array) else _as_result(leaf)
