"""Program of a frozen function for one call signature: its preprocessing, its arrays, and the steady-state program."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.core import ShapedArray

from hlo_dispatch.freezing.array_memory import is_enabled_type
from hlo_dispatch.freezing.call_signature import CallSignature
from hlo_dispatch.freezing.placeholder_executable import PlaceholderExecutable
from hlo_dispatch.freezing.preprocessing import FrozenInputs, Preprocessing, StageExecutables, preprocessing_of
from hlo_dispatch.freezing.reduced_precision import Narrowing
from hlo_dispatch.freezing.report import FrozenValue, ProgramReport, bytes_of
from hlo_dispatch.freezing.stock_fallback import built_or_stock
from hlo_dispatch.freezing.tracing import traced_module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.jax_plugin.explaining import active_pass


@dataclass(frozen=True)
class Program:
    """Preprocessing and steady-state program of one call signature, and the arrays that it holds; thread-safe."""

    signature: str
    split: Split
    preprocessing: Preprocessing
    program: PlaceholderExecutable
    call_signature: CallSignature
    """Arguments of `program` besides its arrays, and its results."""
    smaller: int
    """Number of frozen arrays that are stored in fewer bytes."""
    not_narrowed: Mapping[str, str]
    """Weights that are not stored in fewer bytes: name → why not."""
    rounded_products: int
    """Number of products whose activations each call rounds to eight bits."""
    made: Mapping[Hashable, Any]
    """Key → abstract value of each preprocessed value that its own preprocessing computes."""
    arrays: tuple[Any, ...] | None = None
    """Leading arguments of the steady-state program; None until weights are preprocessed."""

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        originals: Sequence[Any],
        names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        weight_format: str | None,
        activation_format: str | None,
        known: Mapping[Hashable, Any],
        executables: StageExecutables,
        *,
        may_be_activations: bool = False,
    ) -> Program:
        """Compile `fn(originals, *args, **kwargs)`; no weight is preprocessed.

        Where building or compiling fails, the program is stock XLA's, which reads the arrays as they are.

        Args:
            weight_format: how weights are stored (reduced_precision.WEIGHT_FORMATS); None: as they are.
            activation_format: what is multiplied with integer weights is rounded to (dynamic_quantization.py); None: as
                weights are multiplied.
            known: key → abstract value of the preprocessed values of the function's other programs.
            executables: of the stages of those.
            may_be_activations: whether some originals may be no weights (`FrozenModule`).

        Raises:
            FreezeError: as `traced_module`.
            Exception: what tracing the function raises, and compiling stock's program.
        """
        pipeline = active_pass()
        narrowing = Narrowing.on(pipeline.machine, weight_format, activation_format)
        found = traced_module(fn, originals, args, kwargs, narrowing)
        taken = jax.tree.structure((args, kwargs))
        call_signature = CallSignature(found.arguments, taken, found.results, found.structure, found.donated)
        closed = [f" (closed over: {jax.typeof(constant).str_short()})" for constant in found.constants]
        inputs = FrozenInputs(found.constants, [*names, *closed], found.types, found.narrow)
        not_narrowed = {inputs.names[number].lstrip(): why for number, why in found.not_narrowed.items()}

        def compiled(split: Split) -> Program:
            preprocessing = preprocessing_of(split, inputs, known, executables)
            made = preprocessing.compile(originals)
            executable = PlaceholderExecutable(split.program, found.results, found.structure, donated=found.donated)
            program = cls(
                found.signature, split, preprocessing, executable, call_signature, found.smaller, not_narrowed,
                found.rounded_products, made,
            )  # fmt: skip
            program.compile(originals, known, args, kwargs)
            return program

        module = replace(found.frozen_module, may_be_activations=may_be_activations)
        return built_or_stock(module, pipeline, compiled)

    def compile(
        self,
        originals: Sequence[Any],
        known: Mapping[Hashable, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Compile the steady-state program for arrays like these, so that a failure comes before one is deleted."""
        inputs, made = self.preprocessing.inputs, {**known, **self.made}
        frozen = inputs.arrays(originals)
        kept = [inputs.abstract(frozen, number) for number in self.preprocessing.kept.values()]
        arrays = (*(made[key] for key in self.preprocessing.preprocessed), *kept)
        # JAX takes what is abstract and committed to a device for narrower than it is, where its setting says so.
        if all(isinstance(array, ShapedArray) or is_enabled_type(array.dtype) for array in arrays):
            self.program.compile(arrays, *args, **kwargs)

    def holding(self, arrays: Mapping[Hashable, Any]) -> Program:
        """The program with these arrays, by their keys."""
        return replace(self, arrays=tuple(arrays[key] for key in self.preprocessing.keys))

    @property
    def held(self) -> dict[Hashable, Any]:
        """Its arrays by their keys; none until weights are preprocessed."""
        return dict(zip(self.preprocessing.keys, self.arrays or (), strict=self.arrays is not None))

    @cached_property
    def report(self) -> ProgramReport:
        """The program's part of the report: preprocessed values, frozen inputs, weights that are not narrowed."""
        arrays, count = self.arrays or (), len(self.split.preprocessed)
        prepared = [
            FrozenValue(value.origin, str(value.shape), bytes_of(array), value.is_prepacked)
            for value, array in zip(self.split.preprocessed, arrays[:count], strict=bool(arrays))
        ]
        names = [self.preprocessing.inputs.names[number].lstrip() for number in self.preprocessing.kept.values()]
        kept = [
            FrozenValue(name, jax.typeof(array).str_short(short_dtypes=True), bytes_of(array))
            for name, array in zip(names, arrays[count:], strict=bool(arrays))
        ]
        return ProgramReport(
            self.signature, tuple(prepared), tuple(kept), self.split.report, self.smaller, self.not_narrowed,
            self.rounded_products,
        )  # fmt: skip
