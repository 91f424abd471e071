"""The door into JAX: the only caller of its HLO hook.

JAX calls us back with every module it compiles for the CPU. Whatever goes wrong on our side, the answer is
"unchanged" and the user's compile goes on with the stock module; the failure is logged once, the module
kept on disk, and counted in `statistics()`. With `HLO_DISPATCH_STRICT=1` failures are raised instead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hlo_dispatch import kernels, libraries, measuring, own_kernels
from hlo_dispatch.api import rewriter
from hlo_dispatch.errors import HloDispatchError, PolicyError
from hlo_dispatch.kept_memory import keep_memory
from hlo_dispatch.policy import executable
from hlo_dispatch.policy.context import this_context
from hlo_dispatch.policy.decide import MEASURING
from hlo_dispatch.report import Report
from hlo_dispatch.rewriting.rewriter import Rewriter

NAME = "hlo_dispatch"
PLATFORMS = ("cpu",)
_PRE_SCHEDULER = 0
"""The number of jax.extend.xla's stage of that name."""
_KEPT_REPORTS = 64
_logger = logging.getLogger("hlo_dispatch")


@dataclass(frozen=True)
class Statistics:
    """What the pass did in this process."""

    modules: int = 0
    """Modules that were looked at."""
    rewritten: int = 0
    """Modules in which at least one region was dispatched."""
    failures: int = 0
    """Modules where something of ours failed and stock XLA was used instead."""
    seconds: float = 0.0
    """Time spent in the pass, measuring included."""
    measured: int = 0
    """Regions that were measured."""
    measuring_failures: int = 0
    """Regions whose measuring failed: the heuristic decided."""


@dataclass(frozen=True)
class _Settings:
    rewriter: Rewriter
    handlers: tuple[own_kernels.Handler, ...]
    """The users' own kernels of its table."""
    tables: tuple[str, ...] = ()
    """The users' own tables."""

    @cached_property
    def informed(self) -> Rewriter:
        """The pass with what was measured on this machine; loads the vendor libraries."""
        return measuring.informed(self.rewriter)

    @classmethod
    def make(cls, tables: Sequence[str | Path], policy: str) -> _Settings:
        """Raises TableError, PolicyError."""
        made = rewriter(tuple(map(str, tables)), policy)
        if policy == "measure":
            measuring.budget()  # says now what is wrong with it
        return cls(made, tuple(own_kernels.open_handlers(made.table)), tuple(map(str, tables)))


class _State:
    """Everything global, behind one lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.capturing = threading.Lock()
        self.settings: _Settings | None = None
        self.hooked = False
        self.keyed = False
        self.relay = contextlib.ExitStack()
        """Says, while we are in JAX's hook, that stand-ins are exchanged there."""
        self.warned = False
        self.statistics = Statistics()
        self.captured: list[bytes] | None = None
        """The modules that `optimized()` asked for; it wants them as XLA made them."""
        self.explaining = 0
        """How many explain() are compiling right now: their reports are to have details."""
        self.reports: deque[Report] = deque(maxlen=_KEPT_REPORTS)


_state = _State()


def install(
    tables: Sequence[str | Path] = (), policy: str = "measure", platforms: str | Sequence[str] = "cpu"
) -> None:
    """Put the pass into JAX's compiler; programs compiled from now on are dispatched. Idempotent.

    Args:
        tables: pattern tables of your own, besides the shipped ones.
        policy: "measure" (what is not known yet is measured while it is compiled, for a few seconds at most),
            "stored" (nothing is measured), "heuristic", "always" or "never".
        platforms: only "cpu" for now.

    Raises:
        TableError, PolicyError: nothing is installed then, and what was installed before stays.
    """
    for platform in (platforms,) if isinstance(platforms, str) else platforms:
        if platform not in PLATFORMS:
            raise PolicyError(f"unknown platform {platform!r}; valid platforms are: {', '.join(PLATFORMS)}")
    settings = _Settings.make(tables, policy)
    keep_memory()
    kernels.warm_up()
    with _state.lock:
        changed = _state.settings != settings
        _state.settings = settings
        _register_kernels()
        _hook()
    if changed:
        _forget_compiled()


def install_when_ready(tables: Sequence[str | Path], policy: str) -> None:
    """Like `install()`, but for JAX's own start-up: no backend exists yet and none may be asked for.

    The public hook asks for the backends in newer jax, which would wait for itself here; below it lies the
    same function in every jaxlib. The kernels are registered with the first compile or cache look-up.
    """
    from jax._src.lib import _xla

    with _state.lock:
        settings = _Settings.make(tables, policy)
        keep_memory()
        _state.settings = settings
        if not _state.hooked:
            _xla.register_xla_transform(NAME, _PRE_SCHEDULER, _transform)
            _hooked()


def uninstall() -> None:
    """Take the pass out again; programs compiled from now on are stock XLA's. Idempotent."""
    from jax.extend import xla

    with _state.lock:
        changed = _state.settings is not None
        _state.settings = None
        if _state.hooked:
            while xla.clear_hlo_module_transformation(NAME, platforms="cpu"):
                pass
            _state.hooked = False
            _state.relay.close()
    if changed:
        _forget_compiled()


def installed() -> bool:
    """Whether the pass is in JAX's compiler."""
    return _state.settings is not None


@contextlib.contextmanager
def enabled(
    tables: Sequence[str | Path] = (), policy: str = "measure", platforms: str | Sequence[str] = "cpu"
) -> Iterator[None]:
    """Dispatch inside a `with` block; afterwards everything is as it was before."""
    before = _state.settings
    install(tables, policy, platforms)
    try:
        yield
    finally:
        if before is None:
            uninstall()
        elif before != _state.settings:
            with _state.lock:
                _state.settings = before
            _forget_compiled()


def statistics() -> Statistics:
    """What the pass did in this process so far."""
    done = measuring.tally
    return replace(_state.statistics, measured=done.measured, measuring_failures=done.failures)


def reports() -> list[Report]:
    """The reports of the modules compiled most recently, newest last."""
    return list(_state.reports)


def explain(fn, *args, **kwargs) -> Report:
    """What the pass does with `fn`: compiles `fn(*args, **kwargs)` afresh and returns its report.

    `fn` may be jitted or plain. Outside of `install()` the pass is enabled for this compile only. The report has
    details: the nearest misses, and both modules, which `write_page` draws.
    """
    import jax

    jitted = jax.jit(lambda *a, **k: fn(*a, **k))
    with contextlib.nullcontext() if installed() else enabled():
        lowered = jitted.lower(*args, **kwargs)
        with _state.lock:
            _state.reports.append(Report("none"))
            marker = _state.reports[-1]
            _state.explaining += 1
        try:
            lowered.compile()
        finally:
            with _state.lock:
                _state.explaining -= 1
    fresh = reports()
    fresh = fresh[next(i for i, report in enumerate(fresh) if report is marker) + 1 :]
    with _state.lock:
        _state.reports.remove(marker)
    if not fresh:
        raise HloDispatchError("JAX compiled nothing new for this function: its compilation cache answered")
    return max(fresh, key=lambda report: report.instructions)


def optimized(fn, *args, **kwargs) -> bytes:
    """The module that XLA makes of `fn(*args, **kwargs)`, as the pass would see it, serialized.

    Raises:
        HloDispatchError: JAX compiled nothing new.
    """
    import jax

    jitted = jax.jit(lambda *a, **k: fn(*a, **k))
    with contextlib.nullcontext() if installed() else enabled(policy="never"):
        lowered = jitted.lower(*args, **kwargs)
        with _state.capturing:
            _state.captured = captured = []
            try:
                lowered.compile()
            finally:
                _state.captured = None
    if not captured:
        raise HloDispatchError("JAX compiled nothing new for this function: its compilation cache answered")
    return max(captured, key=len)


def installed_tables() -> tuple[str, ...]:
    """The users' own tables that are installed."""
    return _state.settings.tables if _state.settings is not None else ()


def reconsider() -> None:
    """Make what was measured meanwhile take effect: compile anew what is called next."""
    if installed():
        _forget_compiled()


def _register_kernels() -> None:
    import jax

    # XLA hands out type ids only once a CPU client exists, and targets need their types.
    jax.devices("cpu")
    _register_targets()


def _register_targets() -> None:
    """Register the FFI types, then the targets, once; the CPU client exists by now."""
    settings = _state.settings
    executable.register_kernels(settings.handlers if settings is not None else ())


def _hook() -> None:
    if _state.hooked:
        return
    from jax.extend import xla

    # JAX runs a name that is registered twice twice, so this is ours to get right.
    xla.register_hlo_module_transformation(_transform, name=NAME, platforms="cpu")
    _hooked()


def _hooked() -> None:
    _state.hooked = True
    _state.relay.enter_context(executable.relayed())
    _tell_compilation_cache_apart()


def _tell_compilation_cache_apart() -> None:
    """Make JAX's persistent compilation cache key say what the pass would do.

    Without it an executable that was cached before `install()` is used after it, and the other way round.
    JAX has a place for such additions but no public name for it.
    """
    if _state.keyed:
        return
    try:
        from jax._src import cache_key

        previous = cache_key.custom_hook
    except (ImportError, AttributeError):
        _logger.warning(
            "this jax has no place to add to its compilation cache key: clear the persistent cache "
            "(JAX_COMPILATION_CACHE_DIR) whenever hlo-dispatch is installed, changed or uninstalled"
        )
        return
    cache_key.custom_hook = lambda: previous() + _fingerprint()
    _state.keyed = True


def _fingerprint() -> str:
    """Everything the pass's result depends on besides the module; empty while it is not installed."""
    settings = _state.settings
    if settings is None:
        return ""
    # The key is made before the cache is asked, and what the cache holds may call our kernels.
    _register_targets()
    rewriter = settings.informed
    known = f" measured {rewriter.knowledge.fingerprint}" if rewriter.policy in MEASURING else ""
    # Loaded here for the same reason: a cached executable may call any of them.
    found = (f"{name} {library.version if library else 'none'}" for name, library in libraries.survey().items())
    context = f"{this_context().fingerprint} {', '.join(found)}"
    return f"|hlo_dispatch {context} table {rewriter.table.fingerprint} {rewriter.policy}{known}"


def _transform(serialized: bytes) -> bytes | None:
    """JAX's callback. An exception here would abort the user's compile, so none leaves."""
    is_stand_in, module = executable.exchanged(serialized)
    if is_stand_in:
        return module
    settings = _state.settings
    if settings is None:
        return None
    if _state.captured is not None:
        _state.captured.append(serialized)
        return None
    start = time.perf_counter()
    result, failed = None, False
    try:
        result, report = settings.informed.run(serialized, details=_state.explaining > 0)
        _state.reports.append(report)
        if result is not None:
            _register_targets()
    except Exception as error:
        failed = True
        if os.environ.get("HLO_DISPATCH_STRICT") == "1":
            raise
        _warn(error, serialized)
    finally:
        with _state.lock:
            counted = _state.statistics
            _state.statistics = replace(
                counted,
                modules=counted.modules + 1,
                rewritten=counted.rewritten + (result is not None),
                failures=counted.failures + failed,
                seconds=counted.seconds + time.perf_counter() - start,
            )
    return result


def _warn(error: Exception, serialized: bytes) -> None:
    """Say once what failed and where the module is kept; later failures are only counted."""
    with _state.lock:
        if _state.warned:
            return
        _state.warned = True
    try:
        handle, path = tempfile.mkstemp(prefix="hlo_dispatch_failed_", suffix=".pb")
        with os.fdopen(handle, "wb") as file:
            file.write(serialized)
    except OSError as problem:
        path = f"(could not be kept: {problem})"
    _logger.warning(
        "hlo-dispatch failed on a module and stock XLA was used instead (%s: %s). The module is in %s; "
        "`hlo-dispatch rewrite` on it shows the failure. Further failures are only counted in statistics().",
        type(error).__name__,
        error,
        path,
    )


def _forget_compiled() -> None:
    """Make the change take effect: what JAX has compiled already would otherwise be used again."""
    import jax

    jax.clear_caches()
