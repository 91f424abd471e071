"""`hlo_dispatch.jit`: `jax.jit` that freezes the arguments that its caller passes again and again."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Hashable
from typing import Any

import jax

from hlo_dispatch.automatic_freezing import overview, prospect
from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.automatic_freezing.call_site import UNSETTLED, CallSite
from hlo_dispatch.automatic_freezing.eligibility import refusal_of_options
from hlo_dispatch.automatic_freezing.mode import NEVER, NOW, freeze_mode
from hlo_dispatch.automatic_freezing.plain_program import plain_program
from hlo_dispatch.automatic_freezing.services import Services, immediate
from hlo_dispatch.freezing.signature import trace_state_clean
from hlo_dispatch.jax_plugin.explaining import FreezingFunction

_MOST_SITES = 8
"""Structures of arguments of one function that are observed; a function with more is called in too many ways."""


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """`jax.jit`, with arguments frozen that stay the same objects from call to call.

    Once some of JAX's arrays among the arguments, 64 kB or more of them, were the same objects in three calls, a
    program that has them preprocessed is prepared in the background (`freeze`). Then it and the plain program take
    turns in the caller's calls, and the faster one stays. A call with other objects in their place gets the plain
    program. Weights are frozen, answers are not: the arguments are moved, converted, prepacked and folded elementwise
    ahead; every product, convolution, loop, reduction and result is computed by each call, with equal arguments, too.
    Results may differ in their last bits from one call to the next where the program changes.

    Args:
        function: the function; without it, what is returned takes it, as in `@hlo_dispatch.jit(static_argnums=1)`.
        options: those of `jax.jit`.

    Returns:
        What `jax.jit` returns would do: `lower`, `trace`, `eval_shape` and `clear_cache` included. HLO_DISPATCH_FREEZE
        chooses `auto`, `now` (frozen in the first call, without a trial) or `never` (what is returned is
        `jax.jit`'s).

    Raises:
        PolicyError: HLO_DISPATCH_FREEZE or HLO_DISPATCH_FREEZE_MEMORY is invalid.
        TypeError, ValueError: as `jax.jit`.
    """
    if function is None:
        jax.jit(**options)  # raises what is wrong with them
        return functools.partial(jit, **options)
    mode = freeze_mode()
    if mode == NEVER:
        return jax.jit(function, **options)
    return JittedFunction(function, options, immediate() if mode == NOW else Services())


class JittedFunction(FreezingFunction):
    """The function that `jit` returns; thread-safe."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], services: Services) -> None:
        functools.update_wrapper(self, function)  # first: it copies the function's attributes
        self._jitted: Any = jax.jit(function, **options)
        self._options, self._services = options, services
        self._form = CallForm(self._jitted)
        self._refusal = refusal_of_options(options) or self._form.refusal
        self._function = function
        self._sites: dict[Hashable, CallSite] = {}
        self._calls = 0
        self._next_look = sys.maxsize if self._refusal else 0
        """Number of the next call that is looked at: until then nothing can change."""
        self._latest: CallSite | None = None
        """Of the latest call that was looked at."""
        self._forwards = False
        """Whether there is a plain program that is not JAX's own, which every call with its structure runs."""
        overview.functions.add(self)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The function's value; errors as of `jax.jit`."""
        self._calls = calls = self._calls + 1
        if calls < self._next_look:
            return self._jitted(*args, **kwargs)
        latest = self._latest
        if latest is not None and trace_state_clean():
            results = latest.settled_results(args, kwargs)
            if results is not UNSETTLED:
                return results
            checked = latest.checked(args, kwargs)
            if checked is not None:
                return latest.call_checked(*checked)
        is_checked = not calls & (calls - 1)
        if not (is_checked or self._is_watching):
            if all(site.is_settled for site in self.sites):
                self._next_look = 1 << calls.bit_length()
            return self._jitted(*args, **kwargs)
        if not trace_state_clean():
            return self._jitted(*args, **kwargs)
        try:
            leaves, structure = self._form.flat(args, kwargs)
            call = Call(leaves, args, kwargs)
            site = self._sites.get(structure) or self._new_site(structure, call)
        except Exception:
            return self._jitted(*args, **kwargs)  # it says what is wrong with the arguments
        if site is None:
            return self._jitted(*args, **kwargs)
        self._latest = site
        return site.call(call, is_checked=is_checked)

    def _new_site(self, structure: Hashable, call: Call) -> CallSite | None:
        """The site of a structure; None: there are too many."""
        if len(self._sites) >= _MOST_SITES:
            return None
        services = self._services
        plain = plain_program(self._function, self._jitted, self._options, self._form, call, services.smallest_bytes)
        self._forwards = self._forwards or bool(plain.forwarded)
        name = getattr(self, "__name__", "function")
        return self._sites.setdefault(structure, CallSite(name, self._jitted, plain, self._form, services))

    @property
    def _is_watching(self) -> bool:
        if self._forwards:
            return True
        for site in tuple(self._sites.values()):
            if site.is_watching:
                return True
        return not self._sites

    @property
    def jitted(self) -> Any:
        """The function as `jax.jit` makes it."""
        return self._jitted

    @property
    def report(self) -> list[str]:
        """A sentence on each structure of its calls: what is frozen, and how much faster it is, or why nothing is."""
        return [overview.sentence(site) for site in self.sites]

    def frozen_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """A sentence on a call with such arguments, which is not made: what is frozen of it, can be, or why nothing."""
        leaves, structure = self._form.flat(args, kwargs)
        site = self._sites.get(structure)
        if site is not None and (site.program is not None or site.refusal or site.preparation.obstacle):
            return (overview.sentence(site),)
        name = getattr(self, "__name__", "function")
        if self._refusal:
            return (f"{name}: never frozen: {self._refusal}",)
        traced, names = self._jitted.trace(*args, **kwargs), self._form.names(args, kwargs)
        return (prospect.sentence(name, traced, leaves, names, self._services.smallest_bytes),)

    @property
    def sites(self) -> list[CallSite]:
        """Its calls by structure, in the order of their first ones."""
        return list(self._sites.values())

    # Python's protocols (`jax.stages.Wrapped`, which `jax.export` asks for) see no attributes of `__getattr__`.

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`'s functions."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`'s functions."""
        return self._jitted.trace(*args, **kwargs)

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`'s functions."""
        return self._jitted.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """As of `jax.jit`'s functions; what was frozen is freed, too."""
        self._end("its cache was cleared")
        self._jitted.clear_cache()

    def _end(self, why: str) -> None:
        self._latest = None
        if not self._refusal:
            self._next_look = 0
        with contextlib.suppress(KeyError):  # another thread ends them, too
            while self._sites:
                structure, site = self._sites.popitem()
                site.end(why)
                del structure  # after it: static arguments are compared by address

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # Not weakref.finalize: that would hold the sites, and so a function that refers to itself.
        if "_sites" in self.__dict__ and not is_finalizing():
            self._end("its function is gone")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        # What else this jax has.
        if name == "_jitted":
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __reduce__(self) -> Any:
        return functools.partial(jit, **self._options), (self.__wrapped__,)

    def __repr__(self) -> str:
        return f"<hlo_dispatch.jit of {self.__wrapped__!r}>"


def _forked() -> None:
    """In a forked child: none of the threads is there that prepare."""
    for function in list(overview.functions):
        for site in function.sites:
            site.forked()


os.register_at_fork(after_in_child=_forked)
