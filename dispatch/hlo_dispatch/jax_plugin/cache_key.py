"""Compilation-cache key: extends JAX's key by the pass's settings and a module's decision dependencies.

JAX's key covers XLA's inputs. The executable also depends on the pass: without the extension, an executable that was
cached before `install()` would be used after it, and the other way round. JAX computes the key in one function, which
is wrapped here: with an inactive pass the key is JAX's own; otherwise it includes the decision dependencies of this
module (decision_dependencies.py), so that measuring one program does not recompile others.
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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.autotune.run.executable import is_placeholder
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.jax_plugin import decision_dependencies
from hlo_dispatch.jax_plugin.decision_dependencies import DecisionDependencies, DependencyRecorder
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.vendor import libraries

_HIT = "/jax/compilation_cache/cache_hits"
_logger = logging.getLogger("hlo_dispatch")
_lock = ForkSafeLock()
_is_extended = False


@dataclass(frozen=True)
class PendingModule:
    """A module with a computed key that is about to be compiled."""

    name: str
    module: str
    """Name of its decision dependencies."""
    key: str
    """The key's state of its decision dependencies."""


class Slot:
    """The module that one thread is about to compile."""

    pending: PendingModule | None = None


_slots: weakref.WeakSet[Slot] = weakref.WeakSet()
"""Slots of all live threads."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.slot = Slot()
        with _lock:
            _slots.add(self.slot)


_thread = _Thread()


def extend(settings: Callable[[], Pipeline | None]) -> None:
    """Wrap JAX's key function; once in a process.

    Args:
        settings: returns the installed pass; None: there is none.
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


def compiled(name: str, recorder: DependencyRecorder) -> None:
    """Store the decision dependencies of a compiled module, if its key was computed."""
    try:
        pending = claim_pending(name, _thread.slot, _slots)
        if pending is not None and _writes():
            decision_dependencies.keep(pending.module, DecisionDependencies.seen(recorder, pending.key))
    except Exception:
        if is_strict():
            raise
        _logger.debug("what %s rests on is not kept", name, exc_info=True)


def _extended(key: str, settings) -> str:
    """JAX's own key with the extension; where that fails a unique key, so that the user's compile goes on."""
    _thread.slot.pending = None
    try:
        pipeline = settings()
        if is_placeholder(_name(key)):
            # Its name contains a digest of everything that the substituted module depends on.
            return key
        if record.is_capturing or record.wants_details:
            # `explain` needs a compilation, possibly with other settings.
            return _with(key, str(uuid.uuid4()))
        if pipeline is None or pipeline.policy == "never":
            return key
        return _with(key, _added(key, pipeline))
    except Exception:
        if is_strict():
            raise
        _logger.debug("the compilation cache is not asked", exc_info=True)
        return _with(key, str(uuid.uuid4()))


def _added(key: str, pipeline: Pipeline) -> str:
    plan = f"table {pipeline.table.fingerprint} {pipeline.policy}"
    if _is_shared_by_processes():
        return plan
    # A cached executable may call any library.
    found = (
        f"{name} {'none' if isinstance(library, Unavailable) else library.version}"
        for name, library in libraries.survey().items()
    )
    plan += f" {this_context().fingerprint} {', '.join(found)}"
    if pipeline.policy not in MEASURING:
        return plan
    module = hashlib.sha256(f"{key} {plan}".encode()).hexdigest()
    dependencies = decision_dependencies.read(module)
    # A module without stored dependencies may depend on every measurement.
    knowledge = pipeline.knowledge
    dependencies_state = dependencies.key_now(knowledge) if dependencies is not None else knowledge.fingerprint
    _thread.slot.pending = PendingModule(_name(key), module, dependencies_state)
    return f"{plan} {dependencies_state}"


def _with(key: str, addition: str) -> str:
    """A key in JAX's format: the module's name and a hash."""
    return f"{_name(key)}-{hashlib.sha256(f'{key} hlo_dispatch {addition}'.encode()).hexdigest()}"


def _name(key: str) -> str:
    return key.rpartition("-")[0]


def _is_shared_by_processes() -> bool:
    """Whether one process compiles for all others, which find its executable by an equal key."""
    import jax
    from jax._src import distributed

    shares: Any = jax.config  # has its flags as attributes only when it runs
    return bool(shares.jax_share_binary_between_hosts) and distributed.global_state.client is not None


def _writes() -> bool:
    """Whether JAX caches what this process compiles: with jax.distributed only process 0 does, which also decides for
    all (replica_consensus.py)."""
    from jax._src import distributed

    return not distributed.global_state.process_id


def _received(event: str, **_) -> None:
    """Event listener: a cache hit is not compiled."""
    if event == _HIT:
        _thread.slot.pending = None


def claim_pending(name: str, own: Slot, slots: Iterable[Slot]) -> PendingModule | None:
    """Take the pending module of this name, of this thread or (in some versions of jax) of a thread that waits for it.

    None where two threads compile modules of one name: no dependencies are stored rather than wrong ones.
    """
    with _lock:
        named = [own] if _has_name(own.pending, name) else [slot for slot in slots if _has_name(slot.pending, name)]
        if len(named) != 1:
            return None
        pending, named[0].pending = named[0].pending, None
        return pending


def _has_name(pending: PendingModule | None, name: str) -> bool:
    return pending is not None and _normalized(pending.name) == _normalized(name)


def _normalized(name: str) -> str:
    """The name without special characters, which XLA and JAX replace differently."""
    return re.sub(r"[^A-Za-z0-9]", "", name)
