"""Leaf program: the frozen program of a function whose static leaves are certain objects, as long as they live."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import operator
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlo_dispatch.automatic_freezing.leaf_check import LeafCheck
from hlo_dispatch.automatic_freezing.traced_call import TracedCall, key_of
from hlo_dispatch.automatic_freezing.trial import CallTrial
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.callable import Frozen
from hlo_dispatch.freezing.program import Program
from hlo_dispatch.freezing.report import bytes_of
from hlo_dispatch.freezing.signature import signature
from hlo_dispatch.jax_plugin.forgotten_donation import IS_DONATION_KEPT


class OtherSettings(FreezeError):
    """A thread's settings of JAX are not those of the call that it compiles for: a program would be another one."""


_is_deleted = operator.methodcaller("is_deleted")
"""Of any array; an unbound method of their one class takes a third of the time."""


class FrozenLeaves(Frozen):
    """`freeze` of static leaves: programs of several call signatures, and arrays that can be dropped and made again."""

    def __init__(self, name: str, leaves: Sequence[Any]) -> None:
        """Raises FreezeError: as `freeze`."""
        self._calls: dict[Hashable, Callable[..., Any]] = {}
        self._traced: dict[Hashable, Any] = {}

        def call(static: Any, *dynamic: Any) -> Any:
            return self._calls[key_of(value.aval for value in dynamic)](static, *dynamic)

        call.__name__ = call.__qualname__ = name
        super().__init__(call, (list(leaves),), may_be_activations=True)

    def add(self, call: TracedCall) -> None:
        """Compile the program of a call, again where JAX has forgotten it; no weights are preprocessed.

        Raises:
            FreezeError: a leaf is gone, or the function is refused.
            OtherSettings: JAX's settings are others here than in the call.
            Exception: what compiling raises.
        """
        with self._lock:
            self._check_settings(call)
            known = self._programs.get(call.signature)
            if known is not None and self._traced.get(call.signature) is not call.closed:
                self._forget(call)  # traced again, after `jax.clear_caches()`: it may be another program
                known = None
            if known is None:
                self._calls[call.key], self._traced[call.signature] = call.function(), call.closed
                self._build(call.examples, {})
            elif known.arrays is not None:
                leaves = self._originals.arrays("compiling again")
                arrays = list(known.arrays)
                for place, number in _kept_leaves(known, len(leaves)).items():
                    arrays[place] = leaves[number]
                known.program.compile(tuple(arrays), *call.examples)
            try:
                self._check_settings(call)
            except OtherSettings:
                self._forget(call)
                raise

    def _check_settings(self, call: TracedCall) -> None:
        """Raises OtherSettings: this thread's settings of JAX are not those of the call."""
        if signature(call.examples, {}) != call.signature:
            raise OtherSettings("it is called under a setting of JAX that holds in its thread only, or has changed")

    def _forget(self, call: TracedCall) -> None:
        self._programs = {key: program for key, program in self._programs.items() if key != call.signature}

    def steady_state(self, call: TracedCall) -> SteadyState:
        """The program of a call with its arrays, which are computed now where they are not there.

        Raises:
            FreezeError: a leaf is gone.
        """
        count = len(call.static)
        with self._lock:
            self._preprocess()
            self._programs = {key: _without_leaves(program, count) for key, program in self._programs.items()}
            program = self._programs[call.signature]
        kept = {place: call.static[leaf] for place, leaf in _kept_leaves(program, count).items()}
        return SteadyState(program.program.run, program.arrays or (), kept)

    def updated(self, leaves: Sequence[Any]) -> FrozenLeaves | None:
        """This with other leaves, and without arrays; None: they are of other types."""
        self.drop_arrays()
        try:
            self.update(leaves)
        except FreezeError:
            return None
        return self

    def drop_arrays(self) -> None:
        """Free the arrays; the compiled programs stay, for `update`."""
        with self._lock:
            self._programs = {key: replace(program, arrays=None) for key, program in self._programs.items()}
            self._latest = None

    @property
    def preprocessed_bytes(self) -> int:
        """Bytes of the values that are in memory besides the leaves."""
        arrays = {
            key: array
            for program in self._programs.values()
            for key, array in program.held.items()
            if key in set(program.preprocessing.preprocessed)
        }
        return sum(map(bytes_of, arrays.values()))


@dataclass(frozen=True)
class SteadyState:
    """A steady-state program with its arrays, but for the leaves that it reads as they are: those each call gives.

    So the leaves can die, and be donated, as if they were not frozen.
    """

    run: Callable[..., Any]
    """Takes the arrays and the dynamic leaves; compiles nothing: with others it raises NotCompiledForArguments."""
    arrays: tuple[Any, ...]
    kept: Mapping[int, int]
    """Place among the arrays → number of the leaf that belongs there."""

    def __call__(self, leaf: Callable[[int], Any], dynamic: Sequence[Any]) -> Any:
        """The results; `leaf`: a static leaf by its number, `dynamic`: the dynamic leaves."""
        arrays = list(self.arrays)
        for place, number in self.kept.items():
            arrays[place] = leaf(number)
        return self.run(tuple(arrays), *dynamic)


def _kept_leaves(program: Program, count: int) -> dict[int, int]:
    """Place among a program's arrays → which of so many leaves it reads there as it is."""
    first = len(program.preprocessing.preprocessed)
    kept = enumerate(program.preprocessing.kept.values(), first)
    return {place: number for place, number in kept if number < count}


def _without_leaves(program: Program, count: int) -> Program:
    """The program without strong references to leaves, which a view of their memory is, too."""
    if program.arrays is None:
        return program
    kept = _kept_leaves(program, count)
    return replace(program, arrays=tuple(None if n in kept else array for n, array in enumerate(program.arrays)))


class LeafProgram:
    """Steady-state programs for one set of leaves, by call signature; no strong reference to a leaf."""

    def __init__(
        self,
        leaves: Mapping[int, Any],
        on_death: Callable[[], None],
        check: LeafCheck | None = None,
    ) -> None:
        """
        Args:
            leaves: the static leaves, by their numbers.
            on_death: called once when the first of them dies, in whatever thread and place; takes no lock.
            check: `leaf_check` of a call with these leaves; None: its pytree has none.
        """
        self.calls: Mapping[Hashable, CallProgram] = {}
        self.check = check
        self._only: CallProgram | None = None
        self.numbers = tuple(leaves)
        classes = set(map(type, leaves.values()))
        self._is_deleted: Callable[[Any], bool] = classes.pop().is_deleted if len(classes) == 1 else _is_deleted
        self._ids = [id(leaf) for leaf in leaves.values()]
        self._is_alive = True
        this = weakref.ref(self)

        def died(_: Any, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
            program = this()
            if program is not None and program.end() and not is_finalizing():
                on_death()

        # While all of them live, no other object has one of their ids.
        self._references = {number: weakref.ref(leaf, died) for number, leaf in leaves.items()}

    def is_for(self, leaves: Sequence[Any]) -> bool:
        """Whether a call's static leaves are these objects, and none was deleted or donated."""
        found = [leaves[number] for number in self.numbers]
        return self._is_alive and list(map(id, found)) == self._ids and not any(map(self._is_deleted, found))

    def add(self, key: Hashable, call: CallProgram) -> None:
        """Add the program of a call signature, or another one in its place."""
        self.calls = {**self.calls, key: call}
        self._only = call if len(self.calls) == 1 else None

    def call_program(self, leaves: Sequence[Any]) -> CallProgram | None:
        """The program for a call's dynamic leaves; None: it was not compiled for them."""
        only, calls = self._only, self.calls  # once: another thread may change them
        if only is not None:
            return only  # raises NotCompiledForArguments for others
        dynamic = next(iter(calls.values())).call.dynamic if calls else ()
        return calls.get(signature(tuple(leaves[number] for number in dynamic), {}))

    @property
    def settled(self) -> CallProgram | None:
        """The program of the one call signature, if it is known to be faster and donates nothing."""
        only = self._only
        return only if only is not None and only.is_faster and not only.call.donated else None

    def leaf(self, number: int) -> Any:
        """A static leaf; None: it is gone."""
        return self._references[number]()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._is_alive

    def end(self) -> bool:
        """Drop the arrays, for good; returns whether they were there."""
        was_alive, self._is_alive, self.calls, self._only = self._is_alive, False, {}, None
        return was_alive


class CallProgram:
    """The steady-state program of one call signature, and the trial of it."""

    def __init__(self, call: TracedCall, run: SteadyState, trial: CallTrial | None) -> None:
        """
        Args:
            trial: None: the program is used without one.
        """
        self.call, self.trial, self._run = call, trial, run
        self.is_faster = True if trial is None else None
        """What the trial has found; None: it has not ended."""
        self.served = 0
        """Number of calls that it gave results, the trial's included."""

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """The call's results.

        Raises:
            NotCompiledForArguments: the dynamic leaves are others than those that it was compiled for.
        """
        result = self.results(leaves.__getitem__, [leaves[number] for number in self.call.dynamic])
        if not IS_DONATION_KEPT:
            for number in self.call.donated:
                with contextlib.suppress(AttributeError):  # what is no array
                    leaves[number].delete()
        return result

    def results(self, leaf: Callable[[int], Any], dynamic: Sequence[Any]) -> Any:
        """The results of a call that donates nothing.

        Args:
            leaf: a static leaf by its number.
            dynamic: the dynamic leaves.

        Raises:
            NotCompiledForArguments: as for a call.
        """
        result = self._run(leaf, dynamic)
        self.served += 1
        return result
