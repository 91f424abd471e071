"""Replacement of `jax.jit` by `hlo_dispatch.jit`, when JAX is imported, for calls outside of JAX's own modules.

Imports neither JAX nor what `hlo_dispatch.jit` needs: the first comes with the program's own import, the second with
its first use of `jax.jit`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing it takes as long as all of this module
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

_OWN = {"jax", "jaxlib", "hlo_dispatch"}
"""Packages whose modules get JAX's own `jit`."""


def replace_jit() -> None:
    """Put `hlo_dispatch.jit` in `jax.jit`'s place, now or when JAX is imported; idempotent."""
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "jit"):
        _replace(jax)
    elif not any(isinstance(finder, _JaxFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _JaxFinder())


def restore_jit() -> None:
    """Put JAX's own `jit` back; functions that are jitted already stay as they are. Idempotent."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _JaxFinder)]
    jax: Any = sys.modules.get("jax")
    original = getattr(getattr(jax, "jit", None), _REPLACED, None)
    if original is not None:
        jax.jit = original


_REPLACED = "_hlo_dispatch_replaced"
"""The attribute of our `jit` that is JAX's."""


def _replace(jax: Any) -> None:
    original = jax.jit
    if hasattr(original, _REPLACED):
        return

    @functools.wraps(original)
    def jit(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        caller = frame.f_globals.get("__name__") or ""
        if caller.partition(".")[0] in _OWN:
            return original(*args, **kwargs)
        import hlo_dispatch

        return hlo_dispatch.jit(*args, **kwargs)

    jit.__module__ = jax.__name__  # where it is found when it is pickled
    setattr(jit, _REPLACED, original)
    jax.jit = jit


class _JaxFinder:
    """Finds JAX as the other finders do, with a loader that replaces `jit` once the module is there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "jax":
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    loader: Any = _ReplacingLoader(spec.loader, self)
                    spec.loader = loader
                return spec
        return None


class _ReplacingLoader:
    """The loader of JAX's package, which the module has as its own when it runs."""

    def __init__(self, loader: Loader, finder: _JaxFinder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _replace(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
