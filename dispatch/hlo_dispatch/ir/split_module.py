"""The two halves of a module some of whose parameters are frozen, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.report import CallSequence, Report


@dataclass(frozen=True)
class Prepared:
    """One value that the preparation makes and the program reads."""

    shape: Shape
    origin: str
    """What it was in the whole module: an instruction's name, or the call whose kernel it was packed for."""
    is_packed: bool = False
    """Whether only one library's kernel on this kind of processor can read it."""


@dataclass(frozen=True)
class Split:
    """Both halves are serialized optimized HloModuleProtos; parameters are counted as in the whole module's entry."""

    preparation: bytes | None
    """Takes the frozen parameters in `read`, returns a tuple of `prepared`; None where nothing is prepared."""
    read: Sequence[int]
    """Frozen parameters that the preparation takes, in its order."""
    prepared: Sequence[Prepared]
    program: bytes
    """Takes `prepared`, then the frozen parameters in `kept`, then the other parameters of `free`; returns what the
    whole module returns."""
    kept: Sequence[int]
    """Frozen parameters that the program reads as they are."""
    free: Sequence[int]
    """Every parameter that is not frozen, in order, whether or not anything reads it."""
    sequences: Sequence[CallSequence] = ()
    """Of the program."""
    joined: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a call that is a member of one → that one's."""
    report: Report | None = None
    """What the pass did with the program."""


Splitter = Callable[[bytes, AbstractSet[int]], Split]
"""A serialized module, which of its parameters are frozen → its halves, packed for the kernels that are in it."""
