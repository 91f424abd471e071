"""Preparation: the jobs that compile and preprocess the frozen programs of one call site."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from hlo_dispatch.automatic_freezing.call_form import Call
from hlo_dispatch.automatic_freezing.leaf_check import LeafCheck
from hlo_dispatch.automatic_freezing.leaf_program import (
    CallProgram,
    FrozenLeaves,
    LeafProgram,
    OtherSettings,
    SteadyState,
)
from hlo_dispatch.automatic_freezing.plain_program import PlainProgram
from hlo_dispatch.automatic_freezing.services import Services
from hlo_dispatch.automatic_freezing.traced_call import TracedCall
from hlo_dispatch.automatic_freezing.trial import CallTrial
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.signature import signature

_logger = logging.getLogger("hlo_dispatch")
_MOST_CALL_PROGRAMS = 4
_MOST_COMPILES = 8
"""Compiles for further call signatures, and after `jax.clear_caches()`."""
_MOST_MEMORY = 1.25
"""Times the leaves' bytes that preprocessed values may have: layouts of kernels are padded."""
_PADDING = 1 << 20


class Preparation:
    """What is prepared for one call site, and the jobs that prepare it, one at a time; takes no lock."""

    def __init__(
        self,
        name: str,
        services: Services,
        on_ready: Callable[[LeafProgram], None],
        on_refusal: Callable[[str], None],
        on_no_gain: Callable[[tuple[int, ...], str], None],
        on_death: Callable[[], None],
    ) -> None:
        """
        Args:
            on_ready: takes the program that the next calls may run.
            on_refusal: takes why nothing is frozen any more.
            on_no_gain: takes the numbers of leaves that are not worth freezing, and why.
            on_death: called when a leaf is gone, in whatever thread and place.
        """
        self._name, self._services = name, services
        self._on_ready, self._on_refusal, self._on_no_gain, self._on_death = on_ready, on_refusal, on_no_gain, on_death
        self._owner = object()
        """Stands for this in the budget, which would hold the function otherwise."""
        self._frozen: FrozenLeaves | None = None
        self._numbers: tuple[int, ...] = ()
        """Numbers of the leaves of `_frozen`."""
        self._misses: Counter[Hashable] = Counter()
        self.is_running = False
        self.compiles = 0
        """Compiles for further call signatures."""
        self.bytes = 0
        """Bytes of the preprocessed values."""
        self.trials: dict[Hashable, CallTrial] = {}
        self.obstacle = ""
        """Why the latest preparation came to nothing, where another may not."""
        self.failure = ""
        """What failed in preparing, where something did."""

    def reserve(self, size: int) -> str:
        """Reserve memory; returns why that is refused, or an empty string."""
        return self._services.budget.reserve(self._owner, size)

    def drop(self) -> None:
        """Free the arrays; takes no lock."""
        self.bytes = 0
        self._services.budget.release(self._owner)
        frozen = self._frozen
        if frozen is not None:
            self._services.free(frozen.drop_arrays)

    def forget(self) -> None:
        """Drop everything, the compiled programs included."""
        self.drop()
        self._frozen = None

    def forked(self) -> None:
        """In a forked child: let a later call prepare what the parent's threads do; takes no lock."""
        if self.is_running:
            self._frozen, self.obstacle = None, "the process was forked while it was prepared"
            if not self.bytes:
                self._services.budget.release(self._owner)
            self.is_running = False

    def begin(self, static: Mapping[int, Any], call: TracedCall, check: LeafCheck | None) -> None:
        """Submit the jobs that compile and preprocess for these leaves."""
        frozen = self._frozen if self._numbers == tuple(static) else None
        self.is_running = True

        def compile() -> None:
            nonlocal frozen
            try:
                frozen = frozen and frozen.updated(list(static.values()))
                if frozen is None:
                    frozen, self.trials = FrozenLeaves(self._name, list(static.values())), {}
                frozen.add(call)
            except Exception as error:
                self._failed(error, static)
            else:
                if not self._services.preprocess(preprocess):
                    self._not_begun()

        def preprocess() -> None:
            assert frozen is not None, "it was compiled"
            try:
                self._finish(frozen, static, call, check)
            except Exception as error:
                self._failed(error, static)
            finally:
                self.is_running = False

        if not self._services.compile(compile):
            self._not_begun()

    def _finish(
        self, frozen: FrozenLeaves, static: Mapping[int, Any], call: TracedCall, check: LeafCheck | None
    ) -> None:
        """Preprocess, and let the next calls run the program."""
        run = frozen.steady_state(call)
        size, most = frozen.preprocessed_bytes, sum(leaf.nbytes for leaf in static.values())
        if self._services.samples and size < self._services.smallest_bytes:
            self._on_no_gain(tuple(static), f"of what stays the same {size:,} bytes can be computed ahead: too few")
            return
        refusal = self.reserve(size)
        if not refusal and size > _MOST_MEMORY * most + _PADDING:
            refusal = f"its preprocessed values take {size:,} bytes, and the arguments {most:,}"
        if refusal:
            self._on_refusal(refusal)
            return
        self._frozen, self._numbers, self.bytes = frozen, tuple(static), size
        program = LeafProgram(static, self._on_death, check)
        self._add(program, call, run)
        self.obstacle = ""
        self._on_ready(program)

    def _add(self, program: LeafProgram, call: TracedCall, run: SteadyState) -> None:
        """Add a call's program; its trial goes on, or has ended, where its leaves were replaced."""
        key = call.signature
        trial = None
        if self._services.samples:
            trial = self.trials.setdefault(key, CallTrial(self._services.samples))
        made = CallProgram(call, run, trial)
        made.is_faster = True if trial is None else trial.is_faster
        program.add(key, made)

    def compile_for(self, program: LeafProgram, plain: PlainProgram, call: Call) -> None:
        """Compile for a call signature that was not compiled for, or that JAX has forgotten, once it is frequent.

        Args:
            program: the current one, of these leaves.
        """
        numbers, frozen = self._numbers, self._frozen
        if self.is_running or frozen is None or self.compiles >= _MOST_COMPILES:
            return
        leaves = call.leaves
        key = signature(tuple(leaf for number, leaf in enumerate(leaves) if number not in numbers), {})
        self._misses[key] += 1
        is_known = key in program.calls
        if self._misses[key] < self._services.repeats or (len(program.calls) >= _MOST_CALL_PROGRAMS and not is_known):
            return
        self._misses[key], self.compiles, self.is_running = 0, self.compiles + 1, True
        try:
            traced = TracedCall.of(plain.trace(call), leaves, numbers)
            if not self._services.compile(lambda: self._compile_more(frozen, program, traced)):
                self.is_running = False
        except Exception:  # of the function with these arguments: the plain program raises it, too
            self.is_running = False

    def _compile_more(self, frozen: FrozenLeaves, program: LeafProgram, call: TracedCall) -> None:
        def preprocess() -> None:
            try:
                run = frozen.steady_state(call)
                if program.is_alive:
                    self._add(program, call, run)
                    self.bytes = frozen.preprocessed_bytes
            except Exception as error:
                self._not_compiled(error)
            finally:
                self.is_running = False

        try:
            frozen.add(call)
        except Exception as error:
            self._not_compiled(error)
            self.is_running = False
        else:
            if not self._services.preprocess(preprocess):
                self.is_running = False

    def _failed(self, error: Exception, static: Mapping[int, Any]) -> None:
        """Handle a failure of a job: the plain program stays, for good, unless what failed may pass."""
        self._frozen = None  # it refers to the leaves
        self._services.budget.release(self._owner)
        if any(leaf.is_deleted() for leaf in static.values()):
            self._on_death()
        elif isinstance(error, OtherSettings):
            self.obstacle = str(error)
        else:
            self.fail(error)
        self.is_running = False

    def _not_begun(self) -> None:
        """Let a later call prepare: there is no thread, since the process ends or may have no more of them."""
        self._frozen, self.obstacle = None, "there was no thread to prepare it"
        self._services.budget.release(self._owner)
        self.is_running = False

    def _not_compiled(self, error: Exception) -> None:
        """Keep the programs that there are."""
        if not isinstance(error, FreezeError):
            self.compiles = _MOST_COMPILES
            _logger.warning("hlo-dispatch could not compile %s for further arguments (%s)", self._name, error)

    def fail(self, error: Exception) -> None:
        """Refuse for good, and say so where it is a failure."""
        sentence = " ".join(str(error).split())
        self._on_refusal(sentence if isinstance(error, FreezeError) else f"{type(error).__name__}: {sentence}")
        if not isinstance(error, FreezeError):
            self.failure = f"{type(error).__name__}: {sentence}"
            _logger.warning(
                "hlo-dispatch could not freeze arguments of %s, which stays as it is (%s)", self._name, self.failure
            )
