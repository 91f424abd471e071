"""`hlo_dispatch.freeze`: a function some of whose arguments are prepared once, as a function of the others."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from hlo_dispatch.autotune.compare.validation import difference
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing import models
from hlo_dispatch.freezing.frozen_arrays import FrozenArrays
from hlo_dispatch.freezing.placeholder_executable import NotCompiledForArguments
from hlo_dispatch.freezing.program import Program
from hlo_dispatch.freezing.reduced_precision import checked_weight_format
from hlo_dispatch.freezing.report import FreezeReport
from hlo_dispatch.freezing.serialization import save
from hlo_dispatch.freezing.signature import (
    refuse_layouts,
    refuse_several_devices,
    refuse_tensors,
    signature,
    trace_state_clean,
)
from hlo_dispatch.jax_plugin.hook import installed_policy
from hlo_dispatch.process.retained_memory import return_free_memory

_logger = logging.getLogger("hlo_dispatch")


def freeze(model: Any, /, *frozen: Any, keep: bool = False, donate: bool = False, weights: str | None = None) -> Frozen:
    """Prepare weights once instead of in every call.

    Args:
        model: a function, jitted or not, whose leading arguments are frozen; the arrays that it closes over are, too.
            Or a model: `keras.Model`, `flax.nnx.Module`, `equinox.Module` or a `torch.nn.Module` of torchax, whose
            weights are frozen and which infers.
        frozen: the leading arguments, any pytrees. Arrays among them are weights, everything else is part of the
            program.
        keep: hold the weights, so that calls of other shapes can be prepared, and the function be differentiated,
            after the caller has let go of them.
        donate: take the weights: JAX's arrays among them (a model's, too) are deleted as they are prepared, whoever
            holds them, so that they are never in memory twice; so are those of `update`. What does not compile deletes
            nothing. Arrays of NumPy's, and those that a function closes over, stay.
        weights: "bf16" holds weights of f32 with two or more dimensions (those that are multiplied or looked up in) as
            bf16, in half the memory, and multiplies as the processor does best; "int8" holds those of f32,
            bf16 or f16 that are multiplied in products alone as integers of eight bits and a scale for each output;
            "int4" as integers of four bits and a scale for each group of 64 that are summed up; None holds them as
            they are. The report says which are not narrowed, and why; a warning, that none is.

    Returns:
        A function of the remaining arguments, which behaves as if it were jitted. Its first call compiles and prepares.

    Raises:
        FreezeError: a frozen array is traced, deleted, or lies on several devices; `model` is nothing to call;
            `weights` is nothing that they can be held as; both `keep` and `donate`.
        PolicyError: HLO_DISPATCH_POLICY names no policy, and none is installed.
    """
    return Frozen(model, frozen, keep=keep, donate=donate, weights=weights)


class Frozen:
    """What `freeze` returns; safe to call from several threads."""

    def __init__(
        self,
        model: Any,
        frozen: tuple[Any, ...],
        *,
        keep: bool = False,
        donate: bool = False,
        weights: str | None = None,
    ) -> None:
        """Arguments and errors as of `freeze`."""
        if keep and donate:
            raise FreezeError("keep=True and donate=True contradict each other: weights are either held or taken")
        self._weight_format = checked_weight_format(weights)
        installed_policy()  # says now what is wrong with it
        self._donate = donate
        self._adapter = models.adapter_for(model, frozen)
        self._keep = keep
        self._originals = FrozenArrays(self._adapter.frozen(model, frozen))
        self._lock = threading.RLock()
        self._programs: dict[Hashable, Program] = {}
        self._latest: Program | None = None
        self._changes: dict[Hashable, float] = {}
        """By signature, how far smaller weights were found to move results."""
        self.__name__ = getattr(model, "__name__", type(model).__name__)
        self.__doc__ = getattr(model, "__doc__", None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The function's value.

        Raises:
            FreezeError: weights that were let go of are needed once more, an argument lies on several devices, or is
                a tensor of PyTorch's.
            Exception: what the function raises when it is traced, and what jit says of arguments.
        """
        if not trace_state_clean():
            return self._call_stock("a call inside of jax.jit, jax.grad or jax.vmap", args, kwargs)
        program = self._latest
        if program is not None:
            try:
                if len(self._programs) > 1:
                    program = self._programs.get(signature(args, kwargs), program)
                return program.program.run(program.arrays, *args, **kwargs)
            except NotCompiledForArguments:
                pass
            except TypeError:
                refuse_tensors(jax.tree.leaves((args, kwargs)))
                raise
        return self._slow_path(args, kwargs)

    def update(self, model: Any, /, *frozen: Any) -> None:
        """Prepare new weights of the same shapes and types; nothing is compiled again.

        Args:
            model: what `freeze` took: the frozen arguments alone, or the model.
            frozen: further frozen arguments, where there were several.

        Raises:
            FreezeError: the new weights have another form; everything is as it was then.
        """
        new = FrozenArrays(self._adapter.updated(model, frozen))
        with self._lock:
            self._originals.check_compatible_with(new)
            self._preprocess_again(new)
            self._originals, self._changes = new, {}
            self._adapter.rebind(model)
            self._release_weights()
        # What held the former weights would stay with the C library, more with every update.
        return_free_memory()

    def save(self, path: str | Path) -> None:
        """Write its programs and all that they hold to a file, which `hlo_dispatch.load` reads on a machine like this.

        Those are the programs of the signatures that it has been called with.

        Raises:
            FreezeError: it was not called yet; or an argument or a result is a key of jax.random, or in a container
                that only the model's code can make.
            OSError: the file cannot be written; one that was there is as it was.
        """
        programs = list(self._programs.values())
        if not programs:
            raise FreezeError("there is nothing to save yet: call it once with arguments as they will be")
        save(programs, self.__name__, path)

    def largest_change(self, /, *args: Any, **kwargs: Any) -> float:
        """How far smaller weights move the result of a call with these arguments; the report says it from then on.

        The function is compiled and run with the weights as they were given, which are needed once more for that.

        Returns:
            the largest difference of a floating-point result, over the largest value of that result.

        Raises:
            FreezeError: the weights are gone.
            Exception: as a call.
        """
        originals = self._originals.arrays("comparing with the weights as they were given")
        wanted, got = (_floating(jax.jit(self._named())(originals, *args, **kwargs)), _floating(self(*args, **kwargs)))
        change = difference(wanted, got, 0.0).value
        with self._lock:
            self._changes[signature(args, kwargs)] = change
        return change

    @property
    def report(self) -> FreezeReport:
        """What was prepared into what, for each signature it was called with."""
        programs = list(self._programs.items())
        return FreezeReport(tuple(replace(made.report, change=self._changes.get(key)) for key, made in programs))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that its programs hold."""
        sizes: dict[Hashable, int] = {}
        for program in list(self._programs.values()):
            sizes.update(program.bytes_by_address)
        return sum(sizes.values())

    def __repr__(self) -> str:
        return f"<frozen {self.__name__}, {len(self._programs)} programs>"

    def _call_stock(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value by the function that was frozen."""
        return self._function(self._originals.arrays(what), *args, **kwargs)

    def _function(self, arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._adapter.call(self._originals.tree(arrays), args, kwargs)

    def _slow_path(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value by a program that may have to be made or compiled first."""
        if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
            return self._call_stock("a call with jit disabled", args, kwargs)
        refuse_tensors(jax.tree.leaves((args, kwargs)))
        refuse_several_devices(jax.tree.leaves((args, kwargs)), "an argument")
        refuse_layouts(jax.tree.leaves((args, kwargs)))
        with self._lock:
            key = signature(args, kwargs)
            program = self._programs.get(key)
            if program is None:
                originals = self._originals.arrays("a call with arguments of another shape or type")
                names, donate = self._originals.names, self._donate
                made = Program.from_function(
                    self._named(), originals, names, args, kwargs, self._weight_format, donate=donate
                )
                arrays_by_source = {
                    key: arrays for other in self._programs.values() for key, arrays in other.arrays_by_source.items()
                }
                program = made.with_weights(originals, arrays_by_source, donate=donate)
                self._warn_if_nothing_was_narrowed(program)
                # Not what an update brings, which the next one may replace soon.
                program.use_large_pages()
                # Its weights may be nowhere else by now, whatever becomes of this call.
                self._programs = {**self._programs, key: program}
            result = program.program.compile_and_run(program.arrays, *args, **kwargs)
            self._latest = program
            self._release_weights()
            return result

    def _warn_if_nothing_was_narrowed(self, program: Program) -> None:
        """Log once that `weights` changes nothing, unless all of them take no more bytes than that already."""
        if program.smaller or not program.not_narrowed or self._programs:
            return
        name, why = next(iter(program.report.not_narrowed.items()))
        _logger.warning(
            'freeze(%s, weights="%s") narrowed nothing: %s is not, since %s. The report says it of all (%d).',
            self.__name__, self._weight_format, name, why, len(program.not_narrowed),
        )  # fmt: skip

    def _preprocess_again(self, new: FrozenArrays) -> None:
        """Have all programs hold what is prepared from other arrays."""
        arrays = new.arrays("update")
        if self._donate:
            # Arrays that lie on another device than the former ones are compiled for anew: before one is deleted.
            for program in self._programs.values():
                program.compile_prologue(arrays)
        arrays_by_source: dict[Hashable, tuple[Any, ...]] = {}
        programs: dict[Hashable, Program] = {}
        for key, program in self._programs.items():
            is_last = len(programs) == len(self._programs) - 1
            programs[key] = program.with_weights(arrays, arrays_by_source, donate=self._donate and is_last)
            arrays_by_source.update(programs[key].arrays_by_source)
        latest = next((key for key, program in self._programs.items() if program is self._latest), None)
        self._programs = programs
        self._latest = programs[latest] if latest is not None else None

    def _named(self) -> Callable[..., Any]:
        def function(arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._function(arrays, *args, **kwargs)

        function.__name__ = function.__qualname__ = self.__name__
        return function

    def _release_weights(self) -> None:
        if self._programs and not self._keep:
            self._originals.release()
            self._adapter.release()


def _floating(results: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(results) if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)]
