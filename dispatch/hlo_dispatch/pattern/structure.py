"""Structural patterns as the table holds them, and their priority order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hlo_dispatch.pattern.constraints import Condition
from hlo_dispatch.pattern.expression import Expression, may_overlap
from hlo_dispatch.pattern.facts import Attribute
from hlo_dispatch.pattern.table import Numerics, SourceLocation


@dataclass(frozen=True)
class Pattern:
    """A structural pattern: an expression over HLO operations, and the kernel call that computes it."""

    name: str
    formula: str
    spellings: tuple[Expression, ...]
    where: Mapping[str, tuple[Condition, ...]]
    """Value's name → its constraints."""
    kernel: str
    operands: Mapping[str, str]
    """The kernel's operand → the captured value, in the kernel's order."""
    attributes: Mapping[str, Attribute]
    scratch: Attribute | None
    """Scratch bytes, a second result of the call; None: the call has a single result."""
    numerics: Mapping[str, Numerics]
    priority: int
    has_explicit_priority: bool
    """Whether the author wrote the priority."""
    has_near_misses: bool
    """Whether reports say where it stopped."""
    is_user_defined: bool
    """Whether it is in a user's table, and so requested explicitly."""
    origin: str
    location: SourceLocation

    def describe(self) -> str:
        return f"{self.name} by {self.kernel}"


def by_priority(patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """The patterns, highest priority first, a user's in front of a shipped one."""
    return tuple(sorted(patterns, key=lambda pattern: (-pattern.priority, not pattern.is_user_defined)))


def ambiguous_pair(patterns: Iterable[Pattern]) -> tuple[Pattern, Pattern] | None:
    """Two patterns of equal priority that could match one instruction, so that their order is undefined.

    A user's pattern and a shipped one never are such a pair: a table must keep loading when more patterns are shipped.
    """
    seen: list[Pattern] = []
    for pattern in patterns:
        for earlier in seen:
            is_equal = (earlier.priority, earlier.is_user_defined) == (pattern.priority, pattern.is_user_defined)
            if is_equal and _overlap(earlier, pattern):
                return earlier, pattern
        seen.append(pattern)
    return None


def _overlap(first: Pattern, second: Pattern) -> bool:
    if not set(first.numerics) & set(second.numerics):
        return False  # results of different element types
    return any(may_overlap(one.root, other.root) for one in first.spellings for other in second.spellings)
