"""Structural expression terms, and the operations that an expression may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hlo_dispatch.ir.opcode import ELEMENTWISE_BINARY, ELEMENTWISE_TERNARY, ELEMENTWISE_UNARY
from hlo_dispatch.pattern.constraints import PLACES, REDUCERS, Condition

COMMUTATIVE = frozenset(("add", "and", "maximum", "minimum", "multiply", "or", "xor"))

COMPARISONS: Mapping[str, str] = {
    "equal": "EQ",
    "not_equal": "NE",
    "greater": "GT",
    "greater_equal": "GE",
    "less": "LT",
    "less_equal": "LE",
}
"""Operation of the language → HLO's comparison direction."""

MIRRORED: Mapping[str, str] = {"EQ": "EQ", "NE": "NE", "GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE"}
"""Direction → the direction that says the same of the operands exchanged."""


@dataclass(frozen=True)
class OperationSemantics:
    """The HLO meaning of an operation of the language."""

    opcode: str
    arity: int
    detail: str = ""
    """A comparison's direction, a reduction's operation."""
    part_of: str = ""
    """The opcode of the instruction that the result is a part of, where it has several."""


def _meanings() -> dict[str, OperationSemantics]:
    found: dict[str, OperationSemantics] = {}
    for arity, opcodes in enumerate((ELEMENTWISE_UNARY, ELEMENTWISE_BINARY, ELEMENTWISE_TERNARY), 1):
        for opcode in sorted(opcodes - {"compare", "convert"}):
            found[opcode.replace("-", "_")] = OperationSemantics(opcode, arity)
    found.update((name, OperationSemantics("compare", 2, direction)) for name, direction in COMPARISONS.items())
    found.update((name, OperationSemantics("reduce", 1, reducer)) for name, (reducer, _) in REDUCERS.items())
    found.update((name, OperationSemantics("get-tuple-element", 1, part_of="reduce")) for name in PLACES)
    for opcode, arity in (("broadcast", 1), ("transpose", 1), ("dot", 2), ("convolution", 2)):
        found[opcode] = OperationSemantics(opcode, arity)
    return found


OPERATIONS: Mapping[str, OperationSemantics] = _meanings()
"""Every operation an expression may name. Converts and changes of shape are the engine's business."""


@dataclass(frozen=True, eq=False)
class Capture:
    """A capture: any value, and the same value wherever the name is repeated."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Number:
    """A constant of this value, of any shape."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, eq=False)
class Operation:
    """An HLO instruction with these operands."""

    word: str
    """Its name in the language."""
    arguments: tuple[Term, ...]
    conditions: tuple[Condition, ...] = ()
    """Those written inside the expression."""
    name: str = ""

    @property
    def meaning(self) -> OperationSemantics:
        return OPERATIONS[self.word]

    def __str__(self) -> str:
        return f"{self.word}({', '.join(map(str, (*self.arguments, *map(_keyword, self.conditions))))})"


@dataclass(frozen=True, eq=False)
class ActivationCall:
    """An activation of the table, in any spelling, applied to one argument."""

    activation: str
    argument: Term
    parameters: tuple[str | float, ...]
    """For each parameter of the activation, the name that it is bound to, or the number that it must be."""
    conditions: tuple[Condition, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        inside = (self.argument, *self.parameters, *map(_keyword, self.conditions))
        return f"{self.activation}({', '.join(map(str, inside))})"


@dataclass(frozen=True, eq=False)
class AnyOf:
    """Alternatives at one place: the first that matches, given all the rest."""

    alternatives: tuple[Term, ...]
    name: str = ""

    def __str__(self) -> str:
        return f"any_of({', '.join(map(str, self.alternatives))})"


def _keyword(condition: Condition) -> str:
    argument = condition.argument
    if isinstance(argument, tuple):
        argument = list(argument)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return f"{condition.name}={'any' if argument is None else argument}"


Inner = Operation | ActivationCall | AnyOf
Term = Capture | Number | Inner


@dataclass(frozen=True)
class Expression:
    """One spelling of a pattern."""

    root: Inner
    captures: tuple[str, ...]
    parameters: tuple[str, ...]
    """Names under which activations' parameters are kept."""
    definitions: tuple[str, ...]
    """Names of inner values that every match has, and `result`."""
    operations: Mapping[str, str]
    """Definition → the word of its operation or activation."""
    size: int
    """Number of operations."""


def operands_of(term: Term) -> tuple[Term, ...]:
    """The terms directly below a term: operands, or alternatives."""
    match term:
        case Operation():
            return term.arguments
        case ActivationCall():
            return (term.argument,)
        case AnyOf():
            return term.alternatives
        case _:
            return ()


def terms(root: Term) -> Iterator[Term]:
    """Every term once, users before their operands."""
    seen: set[int] = set()
    pending: list[Term] = [root]
    while pending:
        term = pending.pop()
        if id(term) in seen:
            continue
        seen.add(id(term))
        yield term
        pending += reversed(operands_of(term))


def in_every_match(root: Term, contribution: Callable[[Term], Iterable[str]]) -> frozenset[str]:
    """The contributions of the terms that are part of every match, whichever alternatives it takes."""
    known: dict[Term, frozenset[str]] = {}

    def of(term: Term) -> frozenset[str]:
        if term not in known:
            below = [of(operand) for operand in operands_of(term)]
            common = frozenset[str].intersection if isinstance(term, AnyOf) else frozenset[str]().union
            known[term] = common(*below).union(contribution(term))
        return known[term]

    return of(root)


def most_operations(root: Term) -> int:
    """The number of operations in a match that takes the longest alternatives."""
    known: dict[Term, frozenset[Term]] = {}

    def of(term: Term) -> frozenset[Term]:
        if term not in known:
            below = [of(operand) for operand in operands_of(term)]
            if isinstance(term, AnyOf):
                known[term] = max(below, key=len)
            else:
                own = (term,) if isinstance(term, Operation | ActivationCall) else ()
                known[term] = frozenset[Term](own).union(*below)
        return known[term]

    return len(of(root))


def may_overlap(first: Term, second: Term) -> bool:
    """Whether one instruction could match both terms; true where only values could tell."""
    if isinstance(first, Capture) or isinstance(second, Capture):
        return True
    if isinstance(first, AnyOf):
        return any(may_overlap(alternative, second) for alternative in first.alternatives)
    if isinstance(second, AnyOf):
        return may_overlap(second, first)
    if isinstance(first, Number) or isinstance(second, Number):
        return isinstance(first, Number) and isinstance(second, Number) and first.value == second.value
    if isinstance(first, ActivationCall) or isinstance(second, ActivationCall):
        if isinstance(first, ActivationCall) and isinstance(second, ActivationCall):
            return first.activation == second.activation and may_overlap(first.argument, second.argument)
        literal = second if isinstance(first, ActivationCall) else first
        return isinstance(literal, Operation) and literal.word not in ("dot", "convolution", *PLACES, *REDUCERS)
    if first.word != second.word:
        return False
    straight = all(may_overlap(a, b) for a, b in zip(first.arguments, second.arguments, strict=True))
    if straight or first.meaning.opcode not in COMMUTATIVE:
        return straight
    return all(may_overlap(a, b) for a, b in zip(first.arguments, reversed(second.arguments), strict=True))
