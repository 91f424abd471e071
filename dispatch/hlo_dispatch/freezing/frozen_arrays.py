"""Frozen arrays: strong references until they are preprocessed, then weak references."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy
from jax.core import Tracer

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.signature import refuse_several_devices

_RELEASED = (
    "the arrays that this was frozen with are gone, and {what} needs them once more: keep them (hold the weights, or "
    "freeze(..., keep=True)), or call update(weights) first"
)


class FrozenArrays:
    """A frozen pytree: its arrays are weights, its other leaves are part of the program."""

    def __init__(self, tree: Any, *, holds_arrays: bool = True) -> None:
        """Raises FreezeError: a leaf is traced, deleted, or lies on several devices."""
        paths, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._leaves = [leaf for _, leaf in paths]
        self.places = [place for place, leaf in enumerate(self._leaves) if _is_array(leaf)]
        self.names = [jax.tree_util.keystr(paths[place][0]) for place in self.places]
        """Path of each array in the tree."""
        arrays = [self._leaves[place] for place in self.places]
        for name, array in zip(self.names, arrays, strict=True):
            _check(name, array)
        refuse_several_devices(arrays, "a frozen array")
        self.types = [_type(array) for array in arrays]
        self._held: list[Any] | None = arrays
        self._references = [
            weakref.ref(array) if _is_referable(array) else lambda array=array: array for array in arrays
        ]
        for place in self.places:
            self._leaves[place] = None
        if not holds_arrays:
            self.release()

    def release(self) -> None:
        """Drop the strong references."""
        self._held = None

    @property
    def holds_arrays(self) -> bool:
        return self._held is not None

    def arrays(self, what: str) -> list[Any]:
        """The arrays.

        Raises:
            FreezeError: one no longer exists; `what` names the purpose.
        """
        arrays = [known() for known in self._references]
        if any(array is None or _is_deleted(array) for array in arrays):
            raise FreezeError(_RELEASED.format(what=what))
        return arrays

    def tree(self, arrays: Sequence[Any]) -> Any:
        """The tree with these arrays."""
        leaves = list(self._leaves)
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = array
        return jax.tree.unflatten(self._structure, leaves)

    def check_compatible_with(self, new: FrozenArrays) -> None:
        """Check that programs compiled for these arrays take new ones.

        Raises:
            FreezeError: they do not; names the array and the remedy.
        """
        if new._structure != self._structure or new.places != self.places:
            raise FreezeError(_difference(self, new))
        for name, old_type, new_type in zip(self.names, self.types, new.types, strict=True):
            if old_type != new_type:
                raise FreezeError(
                    f"frozen{name} was {_text(old_type)} and would become {_text(new_type)}: convert it, or freeze anew"
                )
        for place, (old, other) in enumerate(zip(self._leaves, new._leaves, strict=True)):
            if place not in self.places and not _is_equal(old, other):
                raise FreezeError(
                    f"{old!r} among what was frozen would become {other!r}, which is no array and part of the compiled "
                    "program: freeze anew"
                )


def _difference(old: FrozenArrays, new: FrozenArrays) -> str:
    missing = [name for name in old.names if name not in set(new.names)]
    added = [name for name in new.names if name not in set(old.names)]
    if missing or added:
        found = [f"frozen{name} is missing" for name in missing[:1]] + [f"frozen{name} is new" for name in added[:1]]
        return f"{' and '.join(found)}: update takes what freeze took, with new values; for another model freeze anew"
    return (
        f"the new values are arranged otherwise ({new._structure} instead of {old._structure}): update takes what "
        "freeze took, with new values; for another model freeze anew"
    )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | numpy.ndarray | numpy.generic)


def _is_referable(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | numpy.ndarray)


def _check(name: str, array: Any) -> None:
    if isinstance(array, Tracer):
        raise FreezeError(
            f"frozen{name} is traced (inside of jax.jit, jax.grad or jax.vmap), so its value is not known: freeze "
            "outside of it"
        )
    if _is_deleted(array):
        raise FreezeError(f"frozen{name} was deleted or donated: freeze before that, or with new weights")


def _is_deleted(array: Any) -> bool:
    return isinstance(array, jax.Array) and array.is_deleted()


def _is_equal(old: Any, new: Any) -> bool:
    if old is new:
        return True
    try:
        return type(old) is type(new) and bool(old == new)
    except Exception:  # a user's class may raise anything
        return False


def _type(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype


def _text(kind: tuple[Any, ...]) -> str:
    shape, dtype = kind
    return f"{dtype}[{','.join(map(str, shape))}]"
