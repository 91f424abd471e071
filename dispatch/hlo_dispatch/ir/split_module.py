"""Split module: the prologue and the steady-state program of a module with frozen parameters, both of them modules."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.report import Report


@dataclass(frozen=True)
class PreprocessedValue:
    """A preprocessed value: the prologue computes it once, the steady-state program reads it in every call."""

    shape: Shape
    origin: str
    """The value's name in the module before the split: an instruction, or the call for whose kernel it is prepacked."""
    is_prepacked: bool = False
    """Whether only one library's kernel on this kind of processor can read it."""


@dataclass
class Split:
    """Prologue and steady-state program, which passes edit further.

    Parameter numbers are those of the entry before the split.
    """

    prologue: Module | None
    """Takes the frozen parameters in `prologue_inputs`, returns a tuple of `preprocessed`; None where it
    is empty."""
    prologue_inputs: Sequence[int]
    """Frozen parameters of the prologue, in its order."""
    preprocessed: Sequence[PreprocessedValue]
    program: Module
    """The steady-state program: takes `preprocessed`, then `frozen_inputs`, then `dynamic_inputs`; returns the results
    of the module before the split."""
    frozen_inputs: Sequence[int]
    """Frozen parameters that the steady-state program reads without preprocessing."""
    dynamic_inputs: Sequence[int]
    """Every parameter that is not frozen, in order, dead ones included."""
    report: Report | None = None
    """The pipeline's report of the program."""


class Splitter(Protocol):
    """(module, which is edited, numbers of its frozen parameters, which of these are of narrower stored types) → split
    module, weights prepacked for its kernels."""

    def __call__(
        self, module: Module, frozen: AbstractSet[int], *, widened: AbstractSet[int] = frozenset()
    ) -> Split: ...
