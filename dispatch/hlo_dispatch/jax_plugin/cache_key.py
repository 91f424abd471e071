"""JAX's persistent compilation cache and the pass: an executable is found again only where it would be made again.

JAX's key says what goes into XLA. What comes out also depends on the pass, so without this an executable that was
cached before `install()` is used after it, and the other way round. JAX gives a module's key away in one function,
whose answer is changed here: where the pass does nothing it is JAX's own, and else it also says what the decisions
for this very module rest on (decision_dependencies.py), so that measuring one program makes no other compile again.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import functools
import hashlib
import logging
import re
import threading
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.autotune.run.executable import is_placeholder
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.jax_plugin import decision_dependencies
from hlo_dispatch.jax_plugin.decision_dependencies import DecisionDependencies, DependencyRecorder
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.vendor import libraries

_HIT = "/jax/compilation_cache/cache_hits"
_logger = logging.getLogger("hlo_dispatch")
_lock = threading.Lock()
_is_extended = False


@dataclass(frozen=True)
class _Pending:
    """A module whose key was made, and which is about to be compiled."""

    name: str
    module: str
    """What stands for it among the grounds."""
    key: str
    """What its key says of them."""


class _Slot:
    """What one thread is about to compile."""

    pending: _Pending | None = None


_slots: weakref.WeakSet[_Slot] = weakref.WeakSet()
"""Of all threads that live."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.slot = _Slot()
        with _lock:
            _slots.add(self.slot)


_thread = _Thread()


def extend(settings: Callable[[], Pipeline | None]) -> None:
    """Have every key say what the pass does; once in a process.

    Args:
        settings: makes the pass as it is installed now; None: it is not.
    """
    global _is_extended
    try:
        from jax import monitoring
        from jax._src import cache_key

        with _lock:
            if _is_extended:
                return
            _is_extended = True
            stock = cache_key.get

            @functools.wraps(stock)
            def get(*arguments, **options) -> str:
                return _extended(stock(*arguments, **options), settings)

            cache_key.get = get
        monitoring.register_event_listener(_received)
    except (ImportError, AttributeError):
        _logger.warning(
            "this jax has no place to add to its compilation cache key: clear the persistent cache "
            "(JAX_COMPILATION_CACHE_DIR) whenever hlo-dispatch is installed, changed or uninstalled"
        )


def compiled(name: str, witness: DependencyRecorder) -> None:
    """Keep what the decisions for a module rested on, if its key was asked for."""
    try:
        pending = _claim_pending(name)
        if pending is not None and _writes():
            decision_dependencies.keep(pending.module, DecisionDependencies.seen(witness, pending.key))
    except Exception:
        if is_strict():
            raise
        _logger.debug("what %s rests on is not kept", name, exc_info=True)


def _extended(key: str, settings) -> str:
    """JAX's own key with what the pass adds; where that fails one that no other module has, so that nothing is found
    and the user's compile goes on."""
    _thread.slot.pending = None
    try:
        rewriter = settings()
        if is_placeholder(_name(key)):
            # Its name says all that what is compiled in its place depends on.
            return key
        if record.is_capturing or record.wants_details:
            # Somebody wants to see it compiled, and perhaps as it is not compiled otherwise.
            return _with(key, str(uuid.uuid4()))
        if rewriter is None or rewriter.policy == "never":
            return key
        return _with(key, _added(key, rewriter))
    except Exception:
        if is_strict():
            raise
        _logger.debug("the compilation cache is not asked", exc_info=True)
        return _with(key, str(uuid.uuid4()))


def _added(key: str, rewriter: Pipeline) -> str:
    plan = f"table {rewriter.table.fingerprint} {rewriter.policy}"
    if _is_shared_by_processes():
        return plan
    # A cached executable may call any of them.
    found = (
        f"{name} {'none' if isinstance(library, Unavailable) else library.version}"
        for name, library in libraries.survey().items()
    )
    plan += f" {this_context().fingerprint} {', '.join(found)}"
    if rewriter.policy not in MEASURING:
        return plan
    module = hashlib.sha256(f"{key} {plan}".encode()).hexdigest()
    known = decision_dependencies.read(module)
    # Of a module that was never seen, all that is measured may have a say.
    rests_on = known.key_now(rewriter.knowledge) if known is not None else rewriter.knowledge.fingerprint
    _thread.slot.pending = _Pending(_name(key), module, rests_on)
    return f"{plan} {rests_on}"


def _with(key: str, addition: str) -> str:
    """A key of JAX's own form: the module's name and a hash."""
    return f"{_name(key)}-{hashlib.sha256(f'{key} hlo_dispatch {addition}'.encode()).hexdigest()}"


def _name(key: str) -> str:
    return key.rpartition("-")[0]


def _is_shared_by_processes() -> bool:
    """Whether one process compiles for all, which find its executable by the key: it has to be the same in all."""
    import jax
    from jax._src import distributed

    shares: Any = jax.config  # has its flags as attributes only when it runs
    return bool(shares.jax_share_binary_between_hosts) and distributed.global_state.client is not None


def _writes() -> bool:
    """Whether JAX writes what this process compiles: with jax.distributed the first does, which also decides for all
    (replica_consensus.py)."""
    from jax._src import distributed

    return not distributed.global_state.process_id


def _received(event: str, **_) -> None:
    """What was found in the cache is not compiled."""
    if event == _HIT:
        _thread.slot.pending = None


def _claim_pending(name: str) -> _Pending | None:
    """What this thread, or in some versions of jax a thread that waits for this one, is compiling under this name.

    None where two threads compile modules of one name: nothing is kept rather than the wrong thing.
    """
    own = _thread.slot
    with _lock:
        slots = [own] if _is(own.pending, name) else [s for s in _slots if _is(s.pending, name)]
        if len(slots) != 1:
            return None
        pending, slots[0].pending = slots[0].pending, None
        return pending


def _is(pending: _Pending | None, name: str) -> bool:
    return pending is not None and _plain(pending.name) == _plain(name)


def _plain(name: str) -> str:
    """XLA and JAX differ in what they make of letters that are none."""
    return re.sub(r"[^A-Za-z0-9]", "", name)
