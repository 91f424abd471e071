"""Purity check: refuses functions that change a model's state while they are traced, with a sentence about the remedy.

Without it they would fail with the framework's own error, lose the change, or leave a tracer in the user's model.
"""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Sequence
from typing import Any

import jax

from hlo_dispatch.errors import FreezeError


@contextlib.contextmanager
def unchanging(frozen: Any) -> Generator[None]:
    """Check a function that is traced inside the block.

    Args:
        frozen: its frozen arguments.

    Raises:
        FreezeError: it changes a variable of Keras, Flax linen or flax.nnx.
    """
    modules = _nnx_modules(frozen)
    before = [nnx_state(module) for module in modules]
    with _keras_scope() as changed:
        try:
            yield
        except _flax_errors() as error:
            # Its message ends with a link.
            raise FreezeError(_refusal_sentence(f"state ({str(error).split(' (http')[0].rstrip('.')})")) from error
    if changed:
        raise FreezeError(_refusal_sentence(f"{changed[0]} of a Keras model"))
    for module, old in zip(modules, before, strict=True):
        refuse_changes(old, nnx_state(module))


def refuse_change(old: Any, new: Any, name: str) -> None:
    """Refuse a changed value.

    Raises:
        FreezeError: the value is not the old one.
    """
    if old is not new:
        raise FreezeError(_refusal_sentence(f"the model's {name}"))


def refuse_changes(old: Sequence[Any], new: Sequence[Any]) -> None:
    """Refuse a changed state of an nnx.Module.

    Raises:
        FreezeError: a value is not the old one.
    """
    for (_, before), (path, after) in zip(old, new, strict=True):
        refuse_change(before, after, jax.tree_util.keystr(path))


def nnx_state(module: Any) -> Sequence[Any]:
    """The arrays of an nnx.Module, with their paths."""
    return jax.tree_util.tree_leaves_with_path(sys.modules["flax.nnx"].state(module))


def _refusal_sentence(what: str) -> str:
    return (
        f"a call changes {what}, and what is frozen stays as it is: have it infer (no statistics of batches, no random "
        "numbers of its own), or have it return the new state"
    )


@contextlib.contextmanager
def _keras_scope() -> Generator[Sequence[str]]:
    """Names of the Keras variables that are assigned inside the block, which does not change them."""
    changed: list[str] = []
    keras: Any = sys.modules.get("keras")
    if not hasattr(keras, "StatelessScope"):
        yield changed
        return

    class Watched(keras.StatelessScope):
        def add_update(self, update: Any) -> None:
            changed.append(update[0].path)
            super().add_update(update)

    with Watched():
        yield changed


def _flax_errors() -> tuple[type[Exception], ...]:
    errors = sys.modules.get("flax.errors")
    names = ("ModifyScopeVariableError", "TraceContextError")
    return tuple(getattr(errors, name) for name in names if hasattr(errors, name))


def _nnx_modules(frozen: Any) -> list[Any]:
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return []
    leaves = jax.tree.leaves(frozen, is_leaf=lambda node: isinstance(node, nnx.Module))
    return [leaf for leaf in leaves if isinstance(leaf, nnx.Module)]
