"""Traced call: the jaxpr of a jitted function's call as a function of its static and its dynamic leaves."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from hlo_dispatch.automatic_freezing.eligibility import (
    refusal_of_donation,
    refusal_of_jaxpr,
    refusal_of_leaves,
)
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.signature import is_key, signature
from hlo_dispatch.jax_plugin.forgotten_donation import IS_DONATION_KEPT

_NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True)
class TracedCall:
    """The jaxpr of one call signature, of a function whose leaves with these numbers are static."""

    closed: Any
    structure: Any
    """Pytree structure of the results."""
    static: tuple[int, ...]
    """Numbers of the static leaves."""
    dynamic: tuple[int, ...]
    """Numbers of the others."""
    donated: tuple[int, ...]
    """Numbers of the donated leaves whose memory a result can take; JAX leaves others as they are."""
    examples: tuple[Any, ...]
    """Abstract values of the dynamic leaves; Python's numbers as they are."""
    signature: Hashable
    """Of the dynamic leaves, under the settings of JAX that it was traced under."""

    @classmethod
    def of(cls, traced: Any, leaves: Sequence[Any], static: Sequence[int]) -> TracedCall:
        """A call as JAX has traced it.

        Raises:
            FreezeError: its function, or a call with such leaves, is never frozen.
        """
        closed = traced.jaxpr
        refusal = refusal_of_jaxpr(closed) or refusal_of_leaves(leaves)
        if refusal:
            raise FreezeError(refusal)
        if len(closed.in_avals) != len(leaves):
            raise FreezeError(f"JAX gives it {len(closed.in_avals)} parameters for {len(leaves)} leaves")
        chosen = set(static)
        flags = donated_flags(traced)
        dynamic = tuple(number for number in range(len(leaves)) if number not in chosen)
        donated = tuple(_usable(closed, (number for number in dynamic if flags[number])))
        refusal = refusal_of_donation([leaves[number] for number in donated])
        if refusal:
            raise FreezeError(refusal)
        examples = tuple(_example(leaves[number]) for number in dynamic)
        return cls(
            closed,
            traced.out_tree,
            tuple(static),
            dynamic,
            donated,
            examples,
            signature(examples, {}),
        )

    @property
    def key(self) -> Hashable:
        """Equal for dynamic leaves of equal abstract values."""
        return key_of(self.closed.in_avals[number] for number in self.dynamic)

    def function(self) -> Callable[..., Any]:
        """The call as a function of (static leaves, *dynamic leaves)."""
        evaluated = jaxpr_as_fun(self.closed)
        donated: tuple[int, ...] = ()
        if IS_DONATION_KEPT:
            donated = tuple(position for position, number in enumerate(self.dynamic) if number in self.donated)

        def of_leaves(*given: Any) -> Any:
            leaves = dict(zip((*self.dynamic, *self.static), given, strict=True))
            return jax.tree.unflatten(self.structure, evaluated(*(leaves[n] for n in range(len(leaves)))))

        # `freeze` takes over what a jitted function inside donates.
        jitted = jax.jit(of_leaves, donate_argnums=donated)
        return lambda static, *dynamic: jitted(*dynamic, *static)


def donated_flags(traced: Any) -> list[bool]:
    """Whether each leaf of a traced call's arguments is donated."""
    infos = jax.tree.leaves(traced.args_info, is_leaf=lambda node: hasattr(node, "donated"))
    return [info.donated for info in infos]


def is_shared(leaves: Sequence[Any], numbers: Sequence[int]) -> bool:
    """Whether one of these leaves is the same object as another leaf."""
    if not numbers:
        return False
    ids = list(map(id, leaves))
    if len(set(ids)) == len(ids):
        return False
    counts = Counter(ids)
    return any(counts[ids[number]] > 1 for number in numbers)


def _usable(closed: Any, donated: Iterable[int]) -> Iterator[int]:
    """Those of the donated leaves that have a result of their own shape and type each, as JAX assigns them."""
    results = Counter((aval.shape, aval.dtype) for aval in closed.out_avals)
    for number in donated:
        aval = closed.in_avals[number]
        if results[aval.shape, aval.dtype]:
            results[aval.shape, aval.dtype] -= 1
            yield number


def key_of(avals: Any) -> Hashable:
    """Equal for lists of equal abstract values."""
    return tuple((aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False))) for aval in avals)


def _example(leaf: Any) -> Any:
    """What stands for a dynamic leaf while programs are compiled, without holding its elements."""
    if isinstance(leaf, _NUMBERS):
        return leaf
    if isinstance(leaf, jax.Array):
        sharding = leaf.sharding if leaf.committed else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.aval.weak_type)
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        raise FreezeError(f"an argument is a {type(leaf).__qualname__}")
    return jax.ShapeDtypeStruct(leaf.shape, dtype if is_key(dtype) else jax.dtypes.canonicalize_dtype(dtype))
