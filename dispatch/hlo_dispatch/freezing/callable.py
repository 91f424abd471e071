"""`hlo_dispatch.freeze`: weight preprocessing once, and a function of the remaining arguments."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from hlo_dispatch.autotune.compare.validation import difference
from hlo_dispatch.driver.frozen_build import FrozenModule
from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing import models
from hlo_dispatch.freezing.array_memory import address_of, use_large_pages
from hlo_dispatch.freezing.dynamic_quantization import checked_activation_format
from hlo_dispatch.freezing.frozen_arrays import FrozenArrays
from hlo_dispatch.freezing.placeholder_executable import NotCompiledForArguments
from hlo_dispatch.freezing.preprocessing import StageExecutables, preprocessed
from hlo_dispatch.freezing.program import Program
from hlo_dispatch.freezing.reduced_precision import Narrowing, checked_weight_format
from hlo_dispatch.freezing.report import FreezeReport, bytes_of
from hlo_dispatch.freezing.serialization import save
from hlo_dispatch.freezing.signature import (
    refuse_layouts,
    refuse_several_devices,
    refuse_tensors,
    signature,
    trace_state_clean,
)
from hlo_dispatch.freezing.tracing import traced_module
from hlo_dispatch.jax_plugin.explaining import FrozenFunction, active_pass
from hlo_dispatch.jax_plugin.hook import installed_policy
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.process.retained_memory import return_free_memory

_logger = logging.getLogger("hlo_dispatch")


def freeze(
    model: Any,
    /,
    *frozen: Any,
    keep: bool = False,
    donate: bool = False,
    weights: str | None = None,
    activations: str | None = None,
    signatures: Sequence[tuple[Any, ...]] = (),
) -> Frozen:
    """Preprocess weights once instead of in every call.

    Args:
        model: a function, jitted or not, whose leading arguments are frozen; the arrays that it closes over are, too.
            Or a model: `keras.Model`, `flax.nnx.Module`, `equinox.Module`, a Flax model of Transformers or a
            `torch.nn.Module` of torchax, whose weights are frozen and which infers.
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
        activations: "int8" rounds what more than eight rows of are multiplied with integer weights to 8-bit integers,
            in each call, with a scale for each group of 64 along the contracted dimensions; products are sums of
            integers then. None leaves it to `weights`. `largest_change` says how far both move results.
        signatures: tuples of further arguments, arrays or `jax.ShapeDtypeStruct`s. Programs for them are compiled, and
            weights preprocessed for all of them, before `freeze` returns.

    Returns:
        A function of the remaining arguments that behaves like a jitted one. Its first call compiles and preprocesses,
        unless there are `signatures`.

    Raises:
        FreezeError: a frozen array is traced, deleted, or lies on several devices; `model` is nothing to call;
            `weights` or `activations` is no format; `activations` without integer weights; both `keep` and `donate`;
            one of `signatures` is no tuple.
        PolicyError: HLO_DISPATCH_POLICY names no policy, and none is installed.
        Exception: what compiling a signature raises.
    """
    return Frozen(
        model, frozen, keep=keep, donate=donate, weights=weights, activations=activations, signatures=signatures
    )


class Frozen(FrozenFunction):
    """The frozen function that `freeze` returns; thread-safe."""

    def __init__(
        self,
        model: Any,
        frozen: tuple[Any, ...],
        *,
        keep: bool = False,
        donate: bool = False,
        weights: str | None = None,
        activations: str | None = None,
        signatures: Sequence[tuple[Any, ...]] = (),
        may_be_activations: bool = False,
    ) -> None:
        """Arguments and errors as of `freeze`.

        Args:
            may_be_activations: some frozen arrays may be what the function computes on; what calls compute with them
                every call computes then (`FrozenModule`).
        """
        if keep and donate:
            raise FreezeError("keep=True and donate=True contradict each other: weights are either held or taken")
        self._weight_format = checked_weight_format(weights)
        self._activation_format = checked_activation_format(activations, weights)
        installed_policy()  # raises an invalid policy now
        self._donate, self._may_be_activations = donate, may_be_activations
        self._adapter = models.adapter_for(model, frozen)
        self._keep = keep
        self._originals = FrozenArrays(self._adapter.frozen(model, frozen))
        self._lock = ForkSafeLock(threading.RLock)
        self._programs: dict[Hashable, Program] = {}
        """Programs by signature, in the order in which they were built."""
        self._executables = StageExecutables()
        self._latest: Program | None = None
        self._changes: dict[Hashable, float] = {}
        """Signature → largest change of results by reduced precision (`largest_change`)."""
        self.__name__ = getattr(model, "__name__", type(model).__name__)
        self.__doc__ = getattr(model, "__doc__", None)
        for args in signatures:
            if not isinstance(args, tuple):
                raise FreezeError(f"signatures are tuples of arguments, as in [(x,), (y,)], and {args!r} is none")
            self.compile(*args)
        if signatures:
            with self._lock:
                self._preprocess()

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
                # Another thread may be preprocessing for it.
                if program.arrays is not None:
                    return program.program.run(program.arrays, *args, **kwargs)
            except NotCompiledForArguments:
                pass
            except TypeError:
                refuse_tensors(jax.tree.leaves((args, kwargs)))
                raise
        return self._slow_path(args, kwargs)

    def generate(self, /, *args: Any, **kwargs: Any) -> Any:
        """What the model's own `generate` returns, of a CausalLM of KerasHub or a Flax language model of Transformers.

        There is one program for each shape of the prompt and each set of options. A KerasHub model samples as
        `model.compile(sampler=...)` says, and the sampler's seed advances as it would.

        Args:
            args, kwargs: of the model's `generate`.

        Raises:
            FreezeError: what was frozen has no `generate`, or as for a call.
            Exception: as for a call, and what the model's own `generate` raises.
        """
        return self._adapter.generate(self, args, kwargs)

    def compile(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile the program for such arguments, which a call with them then finds.

        Weights are preprocessed by the first call, for all programs at once: with `donate=True`, compile all of them
        before that.

        Args:
            args: arrays, or a `jax.ShapeDtypeStruct` for each.

        Raises:
            FreezeError: released weights are needed once more, an argument is on several devices or a PyTorch tensor;
                or this is called inside of jax.jit and the like.
            Exception: what tracing the function raises.
        """
        _refuse_traced()
        _refuse(args, kwargs)
        with self._lock:
            self._build(args, kwargs)
            if any(program.arrays is not None for program in self._programs.values()):
                self._preprocess()

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

        These are the programs of the signatures that it has been called with, or compiled for.

        Raises:
            FreezeError: there are none yet; or an argument or a result is a key of jax.random, or in a container
                that only the model's code can make.
            OSError: the file cannot be written; an existing one is unchanged.
        """
        with self._lock:
            if not self._programs:
                raise FreezeError("there is nothing to save yet: call it once with arguments as they will be")
            self._preprocess()
            programs = list(self._programs.values())
        save(programs, self.__name__, path)

    def frozen_module(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FrozenModule:
        """The optimized module of a call, before it is dispatched: what `explain` and `tune` look at."""
        _refuse_traced()
        _refuse(args, kwargs)
        narrowing = Narrowing.on(active_pass().machine, self._weight_format, self._activation_format)
        originals = self._originals.arrays("explaining or tuning it")
        return traced_module(self._named(), originals, args, kwargs, narrowing).frozen_module

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
        programs = [(key, made) for key, made in self._programs.items() if made.arrays is not None]
        return FreezeReport(tuple(replace(made.report, change=self._changes.get(key)) for key, made in programs))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that its programs hold."""
        programs = list(self._programs.values())
        arrays = {address_of(array): array for program in programs for array in program.arrays or ()}
        return sum(map(bytes_of, arrays.values()))

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
        _refuse(args, kwargs)
        with self._lock:
            key = self._build(args, kwargs)
            self._preprocess()
            program = self._programs[key]
            result = program.program.compile_and_run(program.arrays, *args, **kwargs)
            self._latest = program
            return result

    def _build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """Compile the program for such arguments, unless there is one; returns their signature."""
        key = signature(args, kwargs)
        if key not in self._programs:
            originals = self._originals.arrays("a call with arguments of another shape or type")
            known = {name: made for program in self._programs.values() for name, made in program.made.items()}
            program = Program.from_function(
                self._named(), originals, self._originals.names, args, kwargs, self._weight_format,
                self._activation_format, known, self._executables, may_be_activations=self._may_be_activations,
            )  # fmt: skip
            if not self._programs:
                self._warn_if_nothing_was_narrowed(program)
            self._programs = {**self._programs, key: program}
        return key

    def _preprocess(self) -> None:
        """Preprocess the weights for programs that have none yet; these may exist nowhere else afterwards."""
        programs = self._programs
        missing = [program.preprocessing for program in programs.values() if program.arrays is None]
        if missing:
            held = {key: array for program in programs.values() for key, array in program.held.items()}
            originals = self._originals.arrays("a call with arguments of another shape or type")
            arrays = preprocessed(missing, originals, held, donate=self._donate)
            self._programs = {
                key: program.holding(arrays) if program.arrays is None else program for key, program in programs.items()
            }
            # Not for weights of `update`, which the next update may replace soon.
            use_large_pages([array for key, array in arrays.items() if key not in held])
        self._release_weights()

    def _warn_if_nothing_was_narrowed(self, program: Program) -> None:
        """Log that `weights` narrows nothing, unless all weights are that small already."""
        if program.smaller or not program.not_narrowed:
            return
        name, why = next(iter(program.not_narrowed.items()))
        _logger.warning(
            'freeze(%s, weights="%s") narrowed nothing: %s is not, since %s. The report says it of all (%d).',
            self.__name__, self._weight_format, name, why, len(program.not_narrowed),
        )  # fmt: skip

    def _preprocess_again(self, new: FrozenArrays) -> None:
        """Preprocess new weights for all programs."""
        if all(program.arrays is None for program in self._programs.values()):
            return
        originals, programs = new.arrays("update"), self._programs
        if self._donate:
            # Arrays on another device need another compilation, which must precede deleting one.
            for program in programs.values():
                program.preprocessing.compile(originals)
        steps = [program.preprocessing for program in programs.values()]
        arrays = preprocessed(steps, originals, {}, donate=self._donate)
        self._programs = {key: program.holding(arrays) for key, program in programs.items()}
        latest = next((key for key, program in programs.items() if program is self._latest), None)
        self._latest = self._programs[latest] if latest is not None else None

    def _named(self) -> Callable[..., Any]:
        def function(arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._function(arrays, *args, **kwargs)

        function.__name__ = function.__qualname__ = self.__name__
        return function

    def _release_weights(self) -> None:
        if not self._keep and any(program.arrays is not None for program in self._programs.values()):
            self._originals.release()
            self._adapter.release()


def _refuse_traced() -> None:
    """Refuse to compile inside of another program; raises FreezeError."""
    if not trace_state_clean():
        raise FreezeError("a frozen function cannot be compiled inside of jax.jit, jax.grad or jax.vmap")


def _refuse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that no program takes; raises FreezeError."""
    leaves = jax.tree.leaves((args, kwargs))
    refuse_tensors(leaves)
    refuse_several_devices(leaves, "an argument")
    refuse_layouts(leaves)


def _floating(results: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(results) if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)]
