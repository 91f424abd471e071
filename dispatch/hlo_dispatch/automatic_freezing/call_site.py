"""Call site: the calls of one function with one structure of arguments, from observing them to a frozen program."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
from typing import Any

from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.automatic_freezing.eligibility import is_freezable
from hlo_dispatch.automatic_freezing.leaf_check import leaf_check
from hlo_dispatch.automatic_freezing.leaf_program import CallProgram, LeafProgram
from hlo_dispatch.automatic_freezing.observed_leaves import ObservedLeaves
from hlo_dispatch.automatic_freezing.plain_program import PlainProgram
from hlo_dispatch.automatic_freezing.preparation import Preparation
from hlo_dispatch.automatic_freezing.services import Services
from hlo_dispatch.automatic_freezing.traced_call import TracedCall, is_shared
from hlo_dispatch.automatic_freezing.trial import FROZEN
from hlo_dispatch.freezing.placeholder_executable import NotCompiledForArguments
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

UNSETTLED = object()
"""In place of a value: the call is not one of a settled site."""
_MOST_TRIES = 2
"""Preparations of a program that few calls used; from then on few calls are observed."""
_ENOUGH_CALLS = 16
"""Calls that make a preparation worth it."""


class CallSite:
    """The state of the calls of one structure; thread-safe. It holds no leaf, but as weights of a frozen program."""

    def __init__(self, name: str, jitted: Any, plain: PlainProgram, form: CallForm, services: Services) -> None:
        """
        Args:
            jitted: JAX's own function, for calls that the plain program does not take.
        """
        self.name, self.plain, self._jitted, self._form, self._services = name, plain, jitted, form, services
        self._lock = ForkSafeLock()
        """Held while a call is observed, which another thread's call then is not; callbacks do not take it."""
        self._observed = self._fresh_observation()
        self._program: LeafProgram | None = None
        self._is_replaced = False
        self._tries = 0
        self.preparation = Preparation(name, services, self._adopt, self.end, self._no_gain, self._died)
        self.names: tuple[str, ...] = ()
        """Paths of the frozen leaves."""
        self._set_aside: dict[tuple[int, ...], str] = {}
        """Numbers of leaves that are not frozen together again, since nothing is gained, and why."""
        self.refusal = ""
        """Why nothing is frozen any more; empty: it may be."""

    @property
    def program(self) -> LeafProgram | None:
        """The frozen program that calls with its leaves run, or that is tried."""
        return self._program

    @property
    def is_settled(self) -> bool:
        """Whether it is decided what calls run, as long as they pass the same objects."""
        program = self._program
        if program is None:
            return not (self.is_watching or self.preparation.is_running)
        calls = list(program.calls.values())
        return bool(calls) and all(call.is_faster is not None for call in calls)

    @property
    def is_watching(self) -> bool:
        """Whether every call has to be looked at, and not only each 2^k-th."""
        if self._program is not None:
            return True
        if self.preparation.is_running:
            return False  # what it prepares is there, or not, when it ends
        if self._is_replaced:
            return True
        return not self.refusal and self._tries < _MOST_TRIES and not self._observed.is_exhausted

    def call(self, call: Call, *, is_checked: bool) -> Any:
        """The function's value; `is_checked`: this is a 2^k-th call."""
        if not self.plain.takes(call):
            return self._jitted(*call.args, **call.kwargs)
        return self.plain.finished(self._results(call, is_checked), call)

    def settled_results(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call whose frozen program is known to be faster; UNSETTLED: `checked` has to look at it."""
        program = self._program
        if program is None or program.check is None or self.plain.forwarded:
            return UNSETTLED
        check, chosen = program.check, program.settled
        dynamic = None if chosen is None else check.dynamic_leaves(args, kwargs)
        # Only while it is alive, no other object has the address of one of its leaves.
        if chosen is None or dynamic is None or not program.is_alive:
            return UNSETTLED
        try:
            return chosen.results(program.leaf, dynamic)
        except Exception:
            return UNSETTLED  # the plain program says why

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[LeafProgram, Call] | None:
        """The frozen program for such arguments, and the call; None: that is not known without flattening them."""
        program = self._program
        if program is None or program.check is None:
            return None
        leaves = program.check.leaves(args, kwargs)
        # Only while it is alive, no other object has the address of one of its leaves.
        if leaves is None or not program.is_alive:
            return None
        call = Call(leaves, args, kwargs)
        return (program, call) if self.plain.takes(call) else None

    def call_checked(self, program: LeafProgram, call: Call) -> Any:
        """The function's value, of a frozen program that `checked` returned."""
        return self.plain.finished(self._run(program, call), call)

    def end(self, refusal: str) -> None:
        """Free what is frozen, for good."""
        self.refusal = refusal
        self._drop()
        self.preparation.forget()

    def forked(self) -> None:
        """In a forked child: begin anew what the parent's threads do."""
        self._tries = 0
        self.preparation.forked()

    def _results(self, call: Call, is_checked: bool) -> Any:
        program = self._program
        if program is None or not program.is_for(call.leaves):
            if not self.refusal and not self.preparation.is_running and (is_checked or self.is_watching):
                self._observe(program, call)
            program = self._program
            if program is None or not program.is_for(call.leaves):
                return self.plain(call)
        return self._run(program, call)

    def _run(self, program: LeafProgram, call: Call) -> Any:
        """Call one of the frozen programs, or the plain one where that is faster or its turn."""
        chosen = program.call_program(call.leaves)
        if chosen is not None and chosen.is_faster is None:
            return self._turn(program, chosen, call)
        if chosen is None or chosen.is_faster:
            try:
                return self._frozen_results(chosen, call)
            except NotCompiledForArguments:
                pass
            self._compile_for(program, call)
            chosen = program.call_program(call.leaves)
            if chosen is not None and chosen.is_faster:
                with contextlib.suppress(NotCompiledForArguments):
                    return self._frozen_results(chosen, call)
        return self.plain(call)

    def _frozen_results(self, chosen: CallProgram | None, call: Call) -> Any:
        """The frozen program's results. Raises NotCompiledForArguments: there is none for such arguments."""
        if chosen is None:
            raise NotCompiledForArguments
        if is_shared(call.leaves, chosen.call.donated):
            return self.plain(call)  # JAX says that it donates no such argument
        try:
            return chosen(call.leaves)
        except (FloatingPointError, TypeError, OverflowError):
            # jax_debug_nans, and what is no argument: the plain program says where, and what.
            return self.plain(call)
        except RuntimeError as error:
            if "re-tracing function" not in str(error):  # jax.no_tracing
                raise
            raise NotCompiledForArguments from error

    def _turn(self, program: LeafProgram, chosen: CallProgram, call: Call) -> Any:
        """One call of a trial."""
        trial, clock = chosen.trial, self._services.clock
        assert trial is not None, "what is tried has a trial"
        turn = trial.begin()
        chosen.is_faster = trial.is_faster  # it gives up where no results become ready
        begin = clock()
        try:
            if turn.side == FROZEN:
                # The plain program would be called without looking for leaves.
                if self.checked(call.args, call.kwargs) is None:
                    program.is_for(self._form.flat(call.args, call.kwargs)[0])
                result = self._frozen_results(chosen, call)
            else:
                result = self.plain(call)
        except NotCompiledForArguments:
            trial.end(turn, None)
            self._compile_for(program, call)
            return self.plain(call)
        except BaseException:
            trial.end(turn, None)
            raise

        def ready(is_ready: bool) -> None:
            trial.end(turn, clock() - begin if is_ready else None)
            chosen.is_faster = trial.is_faster
            calls = program.calls.values()
            if chosen.is_faster is False and calls and all(other.is_faster is False for other in calls):
                is_known = trial.seconds[0] is not None
                why = "the plain program is faster" if is_known else "its results took too long to compare it"
                self._no_gain(program.numbers, why)

        if not self._services.when_ready(result, ready):
            trial.end(turn, None)
        return result

    def _observe(self, program: LeafProgram | None, call: Call) -> None:
        """Observe a call whose leaves no program was frozen for, and begin to prepare one where it is time."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.preparation.is_running or self.refusal or self._program is not program:
                return
            if program is not None:
                self._replace(program)
            if self._is_replaced:
                self._is_replaced = False
                numbers = self._observed.replaced(call.leaves)
            else:
                if self._observed.is_exhausted:
                    self._observed = self._fresh_observation()
                numbers = self._observed.observe(call.leaves)
            if numbers in self._set_aside:
                self._observed.is_exhausted = True
            elif numbers:
                self._prepare(numbers, call)
        except Exception as error:
            self.preparation.fail(error)
        finally:
            self._lock.release()

    def _replace(self, program: LeafProgram) -> None:
        """Drop a program that a call had other leaves than."""
        if any(call.served >= _ENOUGH_CALLS for call in program.calls.values()):
            self._tries = 0
        self._drop()
        self._is_replaced = True

    def _drop(self) -> None:
        """Free the arrays; takes no lock."""
        program, self._program = self._program, None
        if program is not None:
            program.end()
        self.preparation.drop()

    def _no_gain(self, numbers: tuple[int, ...], why: str) -> None:
        """Free what is frozen; these leaves are not frozen together again, though more may be: training may end."""
        self._set_aside[numbers] = why
        self._drop()
        self.preparation.forget()
        self.preparation.obstacle = why
        self._observed.is_exhausted = True

    def _died(self) -> None:
        """One of the frozen leaves is gone; called in whatever thread and place."""
        self._drop()
        self._is_replaced = True

    def _adopt(self, program: LeafProgram) -> None:
        """Let the next calls run a program."""
        self._program = program
        if self.refusal:
            self.end(self.refusal)  # meanwhile
        elif program.numbers in self._set_aside:
            self._no_gain(program.numbers, self._set_aside[program.numbers])

    def _prepare(self, numbers: tuple[int, ...], call: Call) -> None:
        """Begin to prepare a program of these leaves."""
        self._tries += 1
        leaves = call.leaves
        static = {number: leaves[number] for number in numbers}
        size = sum(leaf.nbytes for leaf in static.values())
        refusal = self.preparation.reserve(size)
        if refusal:
            self.end(refusal)
            return
        traced = TracedCall.of(self.plain.trace(call), leaves, numbers)
        names = self._form.names(call.args, call.kwargs)
        self.names = tuple(names[number] for number in numbers)
        self.preparation.begin(static, traced, leaf_check(self._form, call, static))

    def _compile_for(self, program: LeafProgram, call: Call) -> None:
        """Have a call signature compiled for that was not, or that JAX has forgotten, once it is frequent."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._program is program:
                self.preparation.compile_for(program, self.plain, call)
        finally:
            self._lock.release()

    def _fresh_observation(self) -> ObservedLeaves:
        return ObservedLeaves(is_freezable, smallest=self._services.smallest_bytes, repeats=self._services.repeats)
