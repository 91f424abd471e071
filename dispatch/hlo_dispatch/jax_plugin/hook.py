"""Compiler hook: registers the pass in JAX's HLO hook, and is the only module that does.

JAX calls the callback with every module that it compiles for the CPU. On any failure the answer is "unchanged", and the
user's compile goes on with the stock module; the failure is logged once, its module written to a file, and counted in
`statistics()` (record.py). With `HLO_DISPATCH_STRICT=1` failures are raised instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.driver import measured_pipeline
from hlo_dispatch.errors import HloDispatchError, PolicyError
from hlo_dispatch.jax_plugin import cache_key, module_collection, replica_consensus
from hlo_dispatch.jax_plugin.decision_dependencies import DependencyRecorder
from hlo_dispatch.jax_plugin.failure_log import FailureLog
from hlo_dispatch.jax_plugin.jit_replacement import replace_jit, restore_jit
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.pattern import tables_or_default
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.environment_switches import check_switches, is_strict
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.process.retained_memory import keep_memory, release_memory
from hlo_dispatch.selection.decide import policy_or_default
from hlo_dispatch.vendor import registration, users_kernels

NAME = "hlo_dispatch"
PLATFORMS = ("cpu",)
_POLICY = "measure"
"""Default policy."""
_PRE_SCHEDULER = 0
"""Number of jax.extend.xla's pre-scheduler stage."""
failure_log = FailureLog()


@dataclass(frozen=True)
class _Settings:
    pipeline: Pipeline
    handlers: tuple[users_kernels.Handler, ...]
    """Handlers of the users' own kernels in its table."""
    tables: tuple[str, ...] = ()
    """The users' own tables."""

    @cached_property
    def with_measurements(self) -> Pipeline:
        """The pass with this machine's measurements; loads the vendor libraries."""
        return measured_pipeline.with_measurements(self.pipeline)

    @classmethod
    def make(cls, tables: Sequence[str | Path] | None, policy: str | None) -> _Settings:
        """Settings from arguments; None: from the environment. Raises TableError, PolicyError."""
        check_switches(PolicyError)
        own = tables_or_default(tables)
        made = replace(pipeline(own, policy_or_default(policy, _POLICY)), preprocesses_constants=True)
        if made.policy == "measure":
            measured_pipeline.budget()  # raises an invalid variable now
        return cls(made, tuple(users_kernels.open_handlers(made.table)), own)


class _State:
    """Global state behind one lock, which is never held during a call into JAX.

    JAX calls the hook while it holds locks of its own, and takes them in calls from here.
    """

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.settings: _Settings | None = None
        self.environment: _Settings | None = None
        """Settings of HLO_DISPATCH=1, even if the program's own settings override them."""
        self.is_decided = False
        """Whether the program itself has called install or uninstall, which overrides the environment."""
        self.hooked = False


_state = _State()


def install(
    tables: Sequence[str | Path] | None = None,
    policy: str | None = None,
    platforms: str | Sequence[str] = "cpu",
    *,
    jit: bool = False,
) -> None:
    """Install the pass in JAX's compiler; programs compiled from now on are dispatched. Idempotent.

    Args:
        tables: pattern tables of your own, besides the shipped ones; None: those that HLO_DISPATCH_TABLES names.
        policy: "measure" (unmeasured regions are measured during compilation, for a few seconds at most),
            "stored" (nothing is measured), "heuristic", "always" or "never"; None: what HLO_DISPATCH_POLICY says, or
            "measure".
        platforms: only "cpu" for now.
        jit: put `hlo_dispatch.jit` in `jax.jit`'s place, for functions that are jitted from now on outside of JAX's own
            modules; `uninstall` puts JAX's back.

    Raises:
        TableError, PolicyError: nothing changes then.
    """
    for platform in (platforms,) if isinstance(platforms, str) else platforms:
        if platform not in PLATFORMS:
            raise PolicyError(f"unknown platform {platform!r}; valid platforms are: {', '.join(PLATFORMS)}")
    settings = _Settings.make(tables, policy)
    registration.register(settings.handlers)
    _apply_settings(settings, is_decided=True)
    if jit:
        replace_jit()


def install_from_environment() -> None:
    """Install the pass by the environment's settings when JAX starts; the program's own settings override them.

    Raises:
        TableError, PolicyError, LibraryError.
    """
    settings = _Settings.make(None, None)
    with _state.lock:
        _state.environment = settings
        if _state.is_decided:
            return
    registration.register(settings.handlers)
    _apply_settings(settings, is_decided=False, from_environment=True)


def uninstall() -> None:
    """Uninstall the pass; programs compiled from now on are stock XLA's. Idempotent."""
    restore_jit()
    _apply_settings(None, is_decided=True)


def installed() -> bool:
    """Whether the pass is installed."""
    return _state.settings is not None


@contextlib.contextmanager
def enabled(
    tables: Sequence[str | Path] | None = None, policy: str | None = None, platforms: str | Sequence[str] = "cpu"
) -> Generator[None]:
    """Install the pass inside a `with` block; restores the former settings at its end."""
    with _state.lock:
        before, was_decided = _state.settings, _state.is_decided
    install(tables, policy, platforms)
    try:
        yield
    finally:
        _apply_settings(before if was_decided else _state.environment, is_decided=was_decided)


def installed_tables() -> tuple[str, ...]:
    """The users' own tables that are installed, or that the environment names."""
    return _state.settings.tables if _state.settings is not None else tables_or_default(None)


def installed_pass() -> Pipeline | None:
    """The installed pass, without measurements; None: there is none."""
    return _state.settings.pipeline if _state.settings is not None else None


def installed_policy() -> str:
    """The policy that is installed, or that the environment names."""
    return _state.settings.pipeline.policy if _state.settings is not None else policy_or_default(None, _POLICY)


def reconsider() -> None:
    """Clear JAX's caches, so that new measurements take effect."""
    if installed():
        _clear_jax_caches()


def _apply_settings(settings: _Settings | None, *, is_decided: bool, from_environment: bool = False) -> None:
    """Apply settings; does not start JAX's backends.

    Args:
        from_environment: whether the program's own settings override these.
    """
    try:
        from jax._src import lib

        # jax.extend.xla's functions would start JAX's backends first; these are the functions that they call.
        hooks: Any = lib._xla  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]
        register = hooks.register_xla_transform
    except (ImportError, AttributeError) as error:
        raise HloDispatchError(f"this jax has no hook for passes ({error}); jax 0.10.2 and 0.12 have one") from error
    # An invalid variable is raised before anything changes.
    if settings is None:
        release_memory()
    else:
        keep_memory(settings.pipeline.policy)
        record.write_at_exit()
    with _state.lock:
        if from_environment and _state.is_decided:
            return
        changed = _state.settings != settings
        _state.settings, _state.is_decided = settings, is_decided
        # XLA's list of passes has no lock: a pass that is removed while another thread compiles would be called after
        # its destruction. So it stays registered, and does nothing. A name that is registered twice would run twice.
        if settings is not None and not _state.hooked:
            register(NAME, _PRE_SCHEDULER, _transform)
            _state.hooked = True
            executable.relay()
    cache_key.extend(_for_cache_key)
    # From the environment: JAX is about to start, and has compiled nothing.
    if changed and not from_environment:
        _clear_jax_caches()


def _register_kernels() -> None:
    settings = _state.settings
    registration.register(settings.handlers if settings is not None else ())


def _for_cache_key() -> Pipeline | None:
    """The installed pass for the cache key; registers kernels first, which a cached executable may call."""
    settings = _state.settings
    if settings is None:
        return None
    _register_kernels()
    return settings.with_measurements


def _transform(serialized: bytes) -> bytes | None:
    """JAX's callback. It lets no exception out, which would abort the user's compile."""
    try:
        is_placeholder, module = executable.substitution(serialized)
        if is_placeholder:
            return module
        settings = _state.settings
        if settings is None or record.capture(serialized):
            return None
        folder = module_collection.folder()
        if folder is not None:
            module_collection.collect(folder, serialized, settings.tables)
            return None
        return _dispatched(settings, serialized)
    except Exception as error:
        leave_to_stock(error, serialized)
        return None


def _dispatched(settings: _Settings, serialized: bytes) -> bytes | None:
    from hlo_dispatch.jax_plugin.forgotten_donation import IS_DONATION_KEPT  # imports jax

    start = time.perf_counter()
    result, failed, failure = None, True, ""
    try:
        pipeline = settings.with_measurements
        recorder = DependencyRecorder(pipeline.knowledge)
        recording = replace(pipeline, knowledge=recorder, keeps_inputs=not IS_DONATION_KEPT)
        result, report = replica_consensus.run(recording, serialized, details=record.wants_details)
        record.keep(report)
        cache_key.compiled(report.module, recorder)
        if result is not None:
            _register_kernels()
        failed, failure = False, report.failure
    finally:
        seconds = time.perf_counter() - start
        record.count(rewritten=not failed and result is not None, failed=failed or bool(failure), seconds=seconds)
    if failure:
        with contextlib.suppress(Exception):
            failure_log.warn(
                f"dispatched a module with less than it could: {failure}", serialized, "rewrite --prepare-constants"
            )
    return result


def leave_to_stock(error: Exception, serialized: bytes) -> None:
    """Handle a failure of the pass on a module: count it, and log the first one.

    Raises:
        Exception: the error itself, with HLO_DISPATCH_STRICT=1.
    """
    # The user's log handlers may raise, too.
    with contextlib.suppress(Exception):
        record.fail(error)
    if is_strict():
        raise error
    with contextlib.suppress(Exception):
        what = f"failed on a module and stock XLA was used instead ({type(error).__name__}: {error})"
        failure_log.warn(what, serialized, "rewrite")


def _clear_jax_caches() -> None:
    """Clear JAX's in-memory caches, so that a change takes effect."""
    import jax

    jax.clear_caches()
