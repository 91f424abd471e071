"""`hlo_dispatch.freeze`: weight preprocessing once, and a function of the remaining arguments."""

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
    """Preprocess weights once instead of in every call.

    Args:
        model: a function, jitted or not, whose leading arguments are frozen; the arrays that it closes over are, too.
            Or a model: `keras.Model`, `flax.nnx.Module`, `equinox.Module` or a `torch.nn.Module` of torchax, whose
            weights are frozen and which infers.
        frozen: the leading arguments, any pytrees. Arrays among them are weights, everything else is part of the
            program.
        keep: keep references to the weights, so that calls of other shapes can be compiled, and the function be
            differentiated, after the caller has dropped them.
        donate: JAX's arrays among the weights (a model's, too) are deleted as they are preprocessed, whoever refers to
            them, so that they are never in memory twice; so are those of `update`. A failed compilation deletes
            nothing. NumPy's arrays, and arrays that a function closes over, stay.
        weights: "bf16" stores f32 weights with two or more dimensions (operands of products, convolutions and lookups)
            as bf16, in half the memory, and multiplies in the processor's fastest type; "int8" stores f32, bf16 or f16
            weights that only products and lookups read as 8-bit integers with a scale for each output or row; "int4" as
            4-bit integers with a scale for each group of 64 along the contracted dimensions; None leaves them
            unchanged. The report says which are not narrowed, and why; a warning says if none is.

    Returns:
        A function of the remaining arguments that behaves like a jitted one. Its first call compiles and preprocesses.

    Raises:
        FreezeError: a frozen array is traced, deleted, or lies on several devices; `model` is nothing to call;
            `weights` is no format; both `keep` and `donate`.
        PolicyError: HLO_DISPATCH_POLICY names no policy, and none is installed.
    """
    return Frozen(model, frozen, keep=keep, donate=donate, weights=weights)


class Frozen:
    """The frozen function that `freeze` returns; thread-safe."""

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
        installed_policy()  # raises an invalid policy now
        self._donate = donate
        self._adapter = models.adapter_for(model, frozen)
        self._keep = keep
        self._originals = FrozenArrays(self._adapter.frozen(model, frozen))
        self._lock = threading.RLock()
        self._programs: dict[Hashable, Program] = {}
        self._latest: Program | None = None
        self._changes: dict[Hashable, float] = {}
        """Signature → largest change of results by reduced precision (`largest_change`)."""
        self.__name__ = getattr(model, "__name__", type(model).__name__)
        self.__doc__ = getattr(model, "__doc__", None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The function's value.

        Raises:
            FreezeError: released weights are needed once more, an argument is on several devices or a PyTorch tensor.
            Exception: what tracing the function raises, and jit's own errors of arguments.
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
        """Preprocess new weights of the same shapes and types, without compiling again.

        Args:
            model: as for `freeze`: the first frozen argument, or the model.
            frozen: further frozen arguments, where there were several.

        Raises:
            FreezeError: the new weights have other shapes, types or structure; nothing changes then.
        """
        new = FrozenArrays(self._adapter.updated(model, frozen))
        with self._lock:
            self._originals.check_compatible_with(new)
            self._preprocess_again(new)
            self._originals, self._changes = new, {}
            self._adapter.rebind(model)
            self._release_weights()
        # Memory of the former weights would stay with the C library, more with every update.
        return_free_memory()

    def save(self, path: str | Path) -> None:
        """Write its programs and their arrays to a file, which `hlo_dispatch.load` reads on a machine like this one.

        These are the programs of the signatures that it has been called with.

        Raises:
            FreezeError: it was not called yet; or an argument or a result is a key of jax.random, or in a container
                that only the model's code can make.
            OSError: the file cannot be written; an existing one is unchanged.
        """
        programs = list(self._programs.values())
        if not programs:
            raise FreezeError("there is nothing to save yet: call it once with arguments as they will be")
        save(programs, self.__name__, path)

    def largest_change(self, /, *args: Any, **kwargs: Any) -> float:
        """Largest change of a call's results by reduced precision of weights; the report shows it from then on.

        The function is compiled and run with the original weights, which are needed once more for that.

        Returns:
            The largest difference of a floating-point result, over the largest value of that result.

        Raises:
            FreezeError: the weights are gone.
            Exception: as for a call.
        """
        originals = self._originals.arrays("comparing with the weights as they were given")
        wanted, got = (_floating(jax.jit(self._named())(originals, *args, **kwargs)), _floating(self(*args, **kwargs)))
        change = difference(wanted, got, 0.0).value
        with self._lock:
            self._changes[signature(args, kwargs)] = change
        return change

    @property
    def report(self) -> FreezeReport:
        """Preprocessed values and frozen inputs of each signature's program."""
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
        """Call the original function."""
        return self._function(self._originals.arrays(what), *args, **kwargs)

    def _function(self, arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._adapter.call(self._originals.tree(arrays), args, kwargs)

    def _slow_path(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a program that may have to be built or compiled first."""
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
                # Not for weights of `update`, which the next update may replace soon.
                program.use_large_pages()
                # Its weights may exist nowhere else by now, even if this call fails.
                self._programs = {**self._programs, key: program}
            result = program.program.compile_and_run(program.arrays, *args, **kwargs)
            self._latest = program
            self._release_weights()
            return result

    def _warn_if_nothing_was_narrowed(self, program: Program) -> None:
        """Log once that `weights` narrows nothing, unless all weights are that small already."""
        if program.smaller or not program.not_narrowed or self._programs:
            return
        name, why = next(iter(program.report.not_narrowed.items()))
        _logger.warning(
            'freeze(%s, weights="%s") narrowed nothing: %s is not, since %s. The report says it of all (%d).',
            self.__name__, self._weight_format, name, why, len(program.not_narrowed),
        )  # fmt: skip

    def _preprocess_again(self, new: FrozenArrays) -> None:
        """Preprocess new weights for all programs."""
        arrays = new.arrays("update")
        if self._donate:
            # Arrays on another device need another compilation, which must precede deleting one.
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
