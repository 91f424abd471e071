"""Call site: the calls of one function with one structure of arguments, from observing them to a frozen program."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from hlo_dispatch.automatic_freezing.call_form import CallForm
from hlo_dispatch.automatic_freezing.eligibility import is_freezable, refusal_of_leaves
from hlo_dispatch.automatic_freezing.leaf_program import (
    CallProgram,
    FrozenLeaves,
    LeafProgram,
    OtherSettings,
    SteadyState,
)
from hlo_dispatch.automatic_freezing.observed_leaves import ObservedLeaves
from hlo_dispatch.automatic_freezing.services import Services
from hlo_dispatch.automatic_freezing.traced_call import TracedCall
from hlo_dispatch.automatic_freezing.trial import FROZEN, CallTrial
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.placeholder_executable import NotCompiledForArguments
from hlo_dispatch.freezing.signature import signature

_logger = logging.getLogger("hlo_dispatch")
_MOST_TRIES = 2
"""Preparations of a program that few calls used; from then on few calls are observed."""
_ENOUGH_CALLS = 16
"""Calls that make a preparation worth it."""
_MOST_CALL_PROGRAMS = 4
_MOST_COMPILES = 8
"""Compiles for further call signatures, and after `jax.clear_caches()`."""
_MOST_MEMORY = 1.25
"""Times the leaves' bytes that preprocessed values may have: layouts of kernels are padded."""
_PADDING = 1 << 20


class CallSite:
    """The state of the calls of one structure; thread-safe. It holds no leaf, but as weights of a frozen program."""

    def __init__(self, name: str, jitted: Any, form: CallForm, services: Services) -> None:
        """
        Args:
            jitted: the plain program.
        """
        self.name, self._jitted, self._form, self._services = name, jitted, form, services
        self._lock = threading.Lock()
        """Held while a call is observed, which another thread's call then is not; callbacks do not take it."""
        self._owner = object()
        """Stands for this in the budget, which would hold the function otherwise."""
        self._observed = self._fresh_observation()
        self._program: LeafProgram | None = None
        self._frozen: FrozenLeaves | None = None
        self._numbers: tuple[int, ...] = ()
        """Numbers of the leaves of `_frozen`."""
        self._is_preparing = self._is_replaced = False
        self._tries = self._compiles = 0
        self._misses: Counter[Hashable] = Counter()
        self.bytes = 0
        """Bytes of the preprocessed values."""
        self.names: tuple[str, ...] = ()
        """Paths of the frozen leaves."""
        self.trials: dict[Hashable, CallTrial] = {}
        self.refusal = ""
        """Why nothing is frozen any more; empty: it may be."""
        self.obstacle = ""
        """Why the latest preparation came to nothing, where another may not."""
        self.failure = ""
        """What failed in preparing, where something did."""

    @property
    def program(self) -> LeafProgram | None:
        """The frozen program that calls with its leaves run, or that is tried."""
        return self._program

    @property
    def is_watching(self) -> bool:
        """Whether every call has to be looked at, and not only each 2^k-th."""
        if self._program is not None or self._is_preparing or self._is_replaced:
            return True
        return not self.refusal and self._tries < _MOST_TRIES and not self._observed.is_exhausted

    def call(self, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_checked: bool) -> Any:
        """The function's value; `is_checked`: this is a 2^k-th call."""
        program = self._program
        if program is None or not program.is_for(leaves):
            if not self.refusal and not self._is_preparing and (is_checked or self.is_watching):
                self._observe(program, leaves, args, kwargs)
            program = self._program
            if program is None or not program.is_for(leaves):
                return self._jitted(*args, **kwargs)
        return self._run(program, leaves, args, kwargs)

    def end(self, refusal: str) -> None:
        """Free what is frozen, for good."""
        self.refusal = refusal
        self._drop()
        self._frozen = None

    def _run(self, program: LeafProgram, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call one of the frozen programs, or the plain one where that is faster or its turn."""
        chosen = program.call_program(leaves)
        if chosen is not None and chosen.is_faster is None:
            return self._turn(program, chosen, leaves, args, kwargs)
        if chosen is None or chosen.is_faster:
            try:
                return self._frozen_result(chosen, leaves, args, kwargs)
            except NotCompiledForArguments:
                pass
            self._compile_for(program, leaves, args, kwargs)
            chosen = program.call_program(leaves)
            if chosen is not None and chosen.is_faster:
                with contextlib.suppress(NotCompiledForArguments):
                    return self._frozen_result(chosen, leaves, args, kwargs)
        return self._jitted(*args, **kwargs)

    def _frozen_result(
        self, chosen: CallProgram | None, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The frozen program's results. Raises NotCompiledForArguments: there is none for such arguments."""
        if chosen is None:
            raise NotCompiledForArguments
        try:
            return chosen(leaves)
        except (FloatingPointError, TypeError, OverflowError):
            # jax_debug_nans, and what is no argument: the plain program says where, and what.
            return self._jitted(*args, **kwargs)
        except RuntimeError as error:
            if "re-tracing function" not in str(error):  # jax.no_tracing
                raise
            raise NotCompiledForArguments from error

    def _turn(
        self,
        program: LeafProgram,
        chosen: CallProgram,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """One call of a trial."""
        trial, clock = chosen.trial, self._services.clock
        assert trial is not None, "what is tried has a trial"
        turn = trial.begin()
        chosen.is_faster = trial.is_faster  # it gives up where no results become ready
        begin = clock()
        try:
            if turn.side == FROZEN:
                # The plain program would be called without looking for leaves.
                program.is_for(self._form.flat(args, kwargs)[0])
                result = self._frozen_result(chosen, leaves, args, kwargs)
            else:
                result = self._jitted(*args, **kwargs)
        except NotCompiledForArguments:
            trial.end(turn, None)
            self._compile_for(program, leaves, args, kwargs)
            return self._jitted(*args, **kwargs)
        except BaseException:
            trial.end(turn, None)
            raise

        def ready(is_ready: bool) -> None:
            trial.end(turn, clock() - begin if is_ready else None)
            chosen.is_faster = trial.is_faster
            if chosen.is_faster is False and all(other.is_faster is False for other in program.calls.values()):
                is_known = trial.seconds[0] is not None
                self.end("the plain program is faster" if is_known else "its results took too long to compare it")

        if not self._services.when_ready(result, ready):
            trial.end(turn, None)
        return result

    def _observe(
        self, program: LeafProgram | None, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Observe a call whose leaves no program was frozen for, and begin to prepare one where it is time."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._is_preparing or self.refusal or self._program is not program:
                return
            if program is not None:
                self._replace(program)
            if self._is_replaced:
                self._is_replaced = False
                numbers = self._observed.replaced(leaves)
            else:
                if self._observed.is_exhausted:
                    self._observed = self._fresh_observation()
                numbers = self._observed.observe(leaves)
            if numbers:
                self._prepare(numbers, leaves, args, kwargs)
        except Exception as error:
            self._fail(error)
        finally:
            self._lock.release()

    def _replace(self, program: LeafProgram) -> None:
        """Drop a program that a call had other leaves than."""
        if any(call.served >= _ENOUGH_CALLS for call in program.calls.values()):
            self._tries = 0
        program.end()
        self._drop()
        self._is_replaced = True

    def _drop(self) -> None:
        """Free the arrays; takes no lock."""
        self._program, self.bytes = None, 0
        self._services.budget.release(self._owner)
        frozen = self._frozen
        if frozen is not None:
            self._services.free(frozen.drop_arrays)

    def _died(self) -> None:
        """One of the frozen leaves is gone; called in whatever thread and place."""
        self._drop()
        self._is_replaced = True

    def _prepare(
        self, numbers: tuple[int, ...], leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Begin to prepare a program of these leaves."""
        self._tries += 1
        static = {number: leaves[number] for number in numbers}
        size = sum(leaf.nbytes for leaf in static.values())
        refusal = refusal_of_leaves(leaves) or self._services.budget.reserve(self._owner, size)
        if refusal:
            self.end(refusal)
            return
        call = TracedCall.of(self._jitted, args, kwargs, leaves, numbers)
        names = self._form.names(args, kwargs)
        self.names = tuple(names[number] for number in numbers)
        self._submit(static, call)

    def _submit(self, static: Mapping[int, Any], call: TracedCall) -> None:
        """Submit the jobs that compile and preprocess."""
        frozen = self._frozen if self._numbers == tuple(static) else None
        self._is_preparing = True

        def compile() -> None:
            nonlocal frozen
            try:
                frozen = frozen and frozen.updated(list(static.values()))
                if frozen is None:
                    frozen, self.trials = FrozenLeaves(self.name, list(static.values())), {}
                frozen.add(call)
            except Exception as error:
                self._failed(error, static)
            else:
                if not self._services.preprocess(preprocess):
                    self._not_begun()

        def preprocess() -> None:
            assert frozen is not None, "it was compiled"
            try:
                self._finish(frozen, static, call)
            except Exception as error:
                self._failed(error, static)
            finally:
                self._is_preparing = False

        if not self._services.compile(compile):
            self._not_begun()

    def _finish(self, frozen: FrozenLeaves, static: Mapping[int, Any], call: TracedCall) -> None:
        """Preprocess, and let the next calls run the program."""
        run = frozen.steady_state(call)
        size, most = frozen.preprocessed_bytes, sum(leaf.nbytes for leaf in static.values())
        refusal = self._services.budget.reserve(self._owner, size)
        if not refusal and size > _MOST_MEMORY * most + _PADDING:
            refusal = f"its preprocessed values take {size:,} bytes, and the arguments {most:,}"
        if refusal:
            self.end(refusal)
            return
        self._frozen, self._numbers, self.bytes = frozen, tuple(static), size
        program = LeafProgram(static, {}, self._died)
        self._add(program, call, run)
        self._program, self.obstacle = program, ""
        if self.refusal:
            self.end(self.refusal)  # meanwhile

    def _add(self, program: LeafProgram, call: TracedCall, run: SteadyState) -> None:
        """Add a call's program; its trial goes on, or has ended, where its leaves were replaced."""
        key = call.signature
        trial = None
        if self._services.samples:
            trial = self.trials.setdefault(key, CallTrial(self._services.samples))
        made = CallProgram(call, run, trial)
        made.is_faster = True if trial is None else trial.is_faster
        program.add(key, made)

    def _compile_for(
        self, program: LeafProgram, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Compile for a call signature that was not compiled for, or that JAX has forgotten, once it is frequent."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            numbers, frozen = self._numbers, self._frozen
            if self._is_preparing or frozen is None or self._program is not program:
                return
            if self._compiles >= _MOST_COMPILES:
                return
            key = signature(tuple(leaf for number, leaf in enumerate(leaves) if number not in numbers), {})
            self._misses[key] += 1
            is_known = key in program.calls
            if self._misses[key] < self._services.repeats or (
                len(program.calls) >= _MOST_CALL_PROGRAMS and not is_known
            ):
                return
            self._misses[key], self._compiles, self._is_preparing = 0, self._compiles + 1, True
            call = TracedCall.of(self._jitted, args, kwargs, leaves, numbers)
            if not self._services.compile(lambda: self._compile_more(frozen, program, call)):
                self._is_preparing = False
        except Exception:  # of the function with these arguments: the plain program raises it, too
            self._is_preparing = False
        finally:
            self._lock.release()

    def _compile_more(self, frozen: FrozenLeaves, program: LeafProgram, call: TracedCall) -> None:
        def preprocess() -> None:
            try:
                run = frozen.steady_state(call)
                if self._program is program:
                    self._add(program, call, run)
                    self.bytes = frozen.preprocessed_bytes
            except Exception as error:
                self._not_compiled(error)
            finally:
                self._is_preparing = False

        try:
            frozen.add(call)
        except Exception as error:
            self._not_compiled(error)
            self._is_preparing = False
        else:
            if not self._services.preprocess(preprocess):
                self._is_preparing = False

    def _failed(self, error: Exception, static: Mapping[int, Any]) -> None:
        """Handle a failure of a job: the plain program stays, for good, unless what failed may pass."""
        self._frozen = None  # it refers to the leaves
        self._services.budget.release(self._owner)
        if any(leaf.is_deleted() for leaf in static.values()):
            self._is_replaced = True
        elif isinstance(error, OtherSettings):
            self.obstacle = str(error)
        else:
            self._fail(error)
        self._is_preparing = False

    def _not_begun(self) -> None:
        """Let a later call prepare: there is no thread, since the process ends or may have no more of them."""
        self._frozen, self.obstacle = None, "there was no thread to prepare it"
        self._services.budget.release(self._owner)
        self._is_preparing = False

    def _not_compiled(self, error: Exception) -> None:
        """Keep the programs that there are."""
        if not isinstance(error, FreezeError):
            self._compiles = _MOST_COMPILES
            _logger.warning("hlo-dispatch could not compile %s for further arguments (%s)", self.name, error)

    def _fail(self, error: Exception) -> None:
        sentence = " ".join(str(error).split())
        self.end(sentence if isinstance(error, FreezeError) else f"{type(error).__name__}: {sentence}")
        if not isinstance(error, FreezeError):
            self.failure = self.refusal
            _logger.warning(
                "hlo-dispatch could not freeze arguments of %s, which stays as it is (%s)", self.name, self.failure
            )

    def _fresh_observation(self) -> ObservedLeaves:
        return ObservedLeaves(is_freezable, smallest=self._services.smallest_bytes, repeats=self._services.repeats)
