"""Split module: the prologue and the steady-state program of a module with frozen parameters, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.report import CallSequence, Report


@dataclass(frozen=True)
class PreprocessedValue:
    """A preprocessed value: the prologue computes it once, the steady-state program reads it in every call."""

    shape: Shape
    origin: str
    """The value's name in the module before the split: an instruction, or the call for whose kernel it is prepacked."""
    is_prepacked: bool = False
    """Whether only one library's kernel on this kind of processor can read it."""


@dataclass(frozen=True)
class Split:
    """Prologue and steady-state program: two serialized optimized HloModuleProtos.

    Parameter numbers are those of the entry before the split.
    """

    prologue: bytes | None
    """Takes the frozen parameters in `prologue_inputs`, returns a tuple of `preprocessed`; None where it
    is empty."""
    prologue_inputs: Sequence[int]
    """Frozen parameters of the prologue, in its order."""
    preprocessed: Sequence[PreprocessedValue]
    program: bytes
    """The steady-state program: takes `preprocessed`, then `frozen_inputs`, then `dynamic_inputs`; returns the results
    of the module before the split."""
    frozen_inputs: Sequence[int]
    """Frozen parameters that the steady-state program reads without preprocessing."""
    dynamic_inputs: Sequence[int]
    """Every parameter that is not frozen, in order, dead ones included."""
    call_groups: Sequence[CallSequence] = ()
    """Call groups of the steady-state program."""
    group_of_call: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a member call → name of its call group."""
    report: Report | None = None
    """The pipeline's report of the program."""


Splitter = Callable[[bytes, AbstractSet[int]], Split]
"""(serialized module, numbers of its frozen parameters) → split module, weights prepacked for its kernels."""
