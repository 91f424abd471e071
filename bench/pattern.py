"""Parser of a pattern's name: `conv_bias_relu` is the operation `conv` and the steps `bias` and `relu`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hlo_dispatch.bench.epilogues import STEPS, BenchStep
from hlo_dispatch.bench.operations import OPERATIONS, BenchOperation, Sizes
from hlo_dispatch.errors import HloDispatchError


class CaseError(HloDispatchError):
    """A pattern, a shape or an element type that there is not; the message says what there is."""


@dataclass(frozen=True)
class BenchPattern:
    """An operation and what follows it."""

    name: str
    operation: BenchOperation
    steps: tuple[BenchStep, ...]

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of the shipped table that it needs."""
        first = (self.operation.entry,) if self.operation.entry else ()
        return first + tuple(step.entry for step in self.steps)

    @property
    def positive(self) -> bool:
        """Whether the operands must be positive: roots and logarithms follow."""
        return any(step.positive and not step.is_binary for step in self.steps)


@lru_cache(maxsize=512)
def read_pattern(name: str) -> BenchPattern:
    """The pattern of that name.

    Raises:
        CaseError: it begins with no operation, or goes on with something that is no step.
    """
    first = _longest(name, OPERATIONS)
    if first is None:
        raise CaseError(f"unknown pattern {name!r}: it begins with one of {', '.join(OPERATIONS)}")
    steps: list[BenchStep] = []
    rest = name[len(first) + 1 :]
    while rest:
        step = _longest(rest, STEPS)
        if step is None:
            raise CaseError(f"unknown pattern {name!r}: after {first} come {', '.join(STEPS)}, not {rest!r}")
        steps.append(STEPS[step])
        rest = rest[len(step) + 1 :]
    return BenchPattern(name, OPERATIONS[first], tuple(steps))


def _longest(text: str, names: dict[str, BenchOperation] | dict[str, BenchStep]) -> str | None:
    found = [name for name in names if text == name or text.startswith(f"{name}_")]
    return max(found, key=len, default=None)


def read_shape(pattern: BenchPattern, text: str) -> dict[str, int]:
    """`n=1,c=64,h=56,w=56,k=64,r=3` as numbers, those by default left out.

    Raises:
        CaseError: a number is missing, unknown, given twice, or no positive whole number.
    """
    operation = pattern.operation
    known = (*operation.needed, *operation.defaults)
    sizes: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            raise CaseError(f"{operation.name} has no {key!r} in its shape: {explain_shape(operation)}")
        if key in sizes:
            raise CaseError(f"{key} is given twice in {text!r}")
        if not value.isdecimal() or (int(value) < 1 and key != "transposed"):
            raise CaseError(f"{part!r} in the shape: expected {key}=NUMBER, a whole number from 1 on")
        sizes[key] = int(value)
    missing = [key for key in operation.needed if key not in sizes]
    if missing:
        raise CaseError(f"the shape of {operation.name} lacks {', '.join(missing)}: {explain_shape(operation)}")
    check_sizes(operation, sizes)
    return sizes


def check_sizes(operation: BenchOperation, sizes: Sizes) -> None:
    """Raises CaseError where the numbers do not go together."""
    whole = operation.sizes(sizes)
    if any(whole[key] % whole["groups"] for key in ("c", "k") if "groups" in whole):
        raise CaseError(f"groups={whole['groups']} must divide c={whole['c']} and k={whole['k']}")
    if any(size < 1 for size in operation.result(whole)):
        raise CaseError(f"the window r={whole['r']} is larger than what it moves over")


def explain_shape(operation: BenchOperation) -> str:
    """`it needs n, c, h, w, k, r and may have stride (1), dilation (1), groups (1)`."""
    optional = ", ".join(f"{key} ({value})" for key, value in operation.defaults.items())
    return f"it needs {', '.join(operation.needed)}" + (f" and may have {optional}" if optional else "")
