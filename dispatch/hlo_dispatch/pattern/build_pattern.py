"""Structural pattern builder: from a schema-checked `patterns:` entry to a Pattern with a typed kernel call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern.algorithms import DTYPES
from hlo_dispatch.pattern.constraints import CONSTRAINTS, Condition, InvalidArgument
from hlo_dispatch.pattern.expression import Expression
from hlo_dispatch.pattern.facts import F32, Attribute, FactQuery, declared_type, fact_queries, read_attribute, type_of
from hlo_dispatch.pattern.kernel_attributes import bound_descriptions
from hlo_dispatch.pattern.messages import suggest
from hlo_dispatch.pattern.read_expression import RESULT, ExpressionError, read_expression
from hlo_dispatch.pattern.schema import CallEntry, PatternEntry
from hlo_dispatch.pattern.source import Keys, Source
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.pattern.table import Activation, KernelBinding, Numerics

_PATTERN_DTYPES = (*DTYPES, "f64", "s32", "s64")
_OF_NUMBERS = ("constant", "constant_near", "constant_between")


class PatternBuilder:
    """Builder of one file's structural patterns; every failure is a TableError at the offending character."""

    def __init__(
        self,
        source: Source,
        kernels: Mapping[str, KernelBinding],
        activations: Mapping[str, Activation],
        *,
        is_user_defined: bool,
    ) -> None:
        self._source, self._kernels, self._is_users = source, kernels, is_user_defined
        self._activations = {name: tuple(p.name for p in a.parameters) for name, a in activations.items()}

    def pattern(self, name: str, entry: PatternEntry) -> Pattern:
        path: Keys = ("patterns", name)
        texts = [entry.match] if isinstance(entry.match, str) else entry.match
        locations: list[Keys] = [
            (*path, "match") if isinstance(entry.match, str) else (*path, "match", n) for n in range(len(texts))
        ]
        spellings = [self._spelling(location, text) for location, text in zip(locations, texts, strict=True)]
        self._same_names(locations, spellings)
        where = self._where((*path, "where"), entry.where, spellings)
        call = _Call(self._source, (*path, "kernel"), spellings, where)
        kernel = call.kernel(entry.kernel, self._kernels)
        operands = call.operands(entry.kernel, kernel)
        attributes = call.attributes(entry.kernel, kernel)
        scratch = call.scratch(entry.kernel.scratch, kernel)
        self._nothing_ignored(locations[0], spellings[0], where, operands, attributes, scratch)
        for dtype in entry.numerics:
            if dtype not in _PATTERN_DTYPES:
                location = self._source.key_location((*path, "numerics", dtype))
                advice = suggest(dtype, _PATTERN_DTYPES)
                raise self._source.error(location, f"unknown element type {dtype!r}", advice)
        size = max(spelling.size for spelling in spellings)
        return Pattern(
            name, entry.formula, tuple(spellings), where, entry.kernel.name, operands, attributes, scratch,
            {dtype: Numerics(n.tolerance, n.why) for dtype, n in entry.numerics.items()},
            size if entry.priority is None else entry.priority, entry.priority is not None, entry.near_misses,
            self._is_users, entry.origin, self._source.key_location(path),
        )  # fmt: skip

    def _spelling(self, path: Keys, text: str) -> Expression:
        try:
            return read_expression(text, self._activations)
        except ExpressionError as error:
            location = self._source.place_within(path, error.column, error.line)
            raise self._source.error(location, f"bad expression: {error.problem}", error.advice) from None

    def _same_names(self, locations: list[Keys], spellings: list[Expression]) -> None:
        first = {*spellings[0].captures, *spellings[0].parameters}
        for location, spelling in zip(locations[1:], spellings[1:], strict=True):
            names = {*spelling.captures, *spelling.parameters}
            if names != first:
                problem = f"this spelling captures {_listed(names)}, the first {_listed(first)}"
                raise self._error(location, problem, "all spellings name the same values")

    def _where(
        self, path: Keys, where: Mapping[str, Mapping[str, Any]], spellings: list[Expression]
    ) -> dict[str, tuple[Condition, ...]]:
        found: dict[str, tuple[Condition, ...]] = {}
        known = list(dict.fromkeys(n for s in spellings for n in (*s.captures, *s.parameters, *s.operations)))
        for name, demanded in where.items():
            if name not in known:
                raise self._key_error((*path, name), f"{name!r} is not a value of the expression", suggest(name, known))
            conditions = [
                self._condition((*path, name, key), key, written, name, spellings, known)
                for key, written in demanded.items()
            ]
            found[name] = tuple(conditions)
        return found

    def _condition(
        self, path: Keys, key: str, written: Any, name: str, spellings: list[Expression], known: list[str]
    ) -> Condition:
        constraint = CONSTRAINTS.get(key)
        if constraint is None:
            raise self._key_error(path, f"unknown constraint {key!r}", suggest(key, CONSTRAINTS))
        try:
            argument = constraint.read(written)
        except InvalidArgument as error:
            raise self._error(path, f"{key} is {written!r}", str(error)) from None
        words = {spelling.operations[name] for spelling in spellings if name in spelling.operations}
        if constraint.operations and (not words or not words <= set(constraint.operations)):
            advice = f"it is for {', '.join(constraint.operations)}"
            raise self._key_error(path, f"{key} says nothing of {name}", advice)
        if key not in _OF_NUMBERS and any(name in spelling.parameters for spelling in spellings):
            raise self._key_error(path, f"{name} is a number", f"it can be {', '.join(_OF_NUMBERS)}")
        if constraint.names_value and argument not in known:
            raise self._error(path, f"{argument!r} is not a value of the expression", suggest(argument, known))
        return Condition(key, argument)

    def _nothing_ignored(
        self, path: Keys, spelling: Expression, where: Mapping[str, tuple[Condition, ...]],
        operands: Mapping[str, str], attributes: Mapping[str, Attribute], scratch: Attribute | None,
    ) -> None:  # fmt: skip
        """Refuses a value that the kernel is not passed, because the call would ignore it."""
        named = set(operands.values())
        for attribute in (*attributes.values(), *(() if scratch is None else (scratch,))):
            named.update(fact.of for fact in fact_queries(attribute) if fact.fact == "value")
        for name in (*spelling.captures, *spelling.parameters):
            fixed = any(condition.name == "constant_near" for condition in where.get(name, ()))
            if name not in named and not fixed:
                advice = "give it as an operand, as an attribute value(...), or write the number it is"
                raise self._error(path, f"the kernel is not told {name}", advice)

    def _error(self, path: Keys, problem: str, advice: str = "") -> TableError:
        return self._source.error(self._source.location(path), problem, advice)

    def _key_error(self, path: Keys, problem: str, advice: str = "") -> TableError:
        return self._source.error(self._source.key_location(path), problem, advice)


class _Call:
    """Checker of a pattern's `kernel:` against the kernel's declaration."""

    def __init__(
        self, source: Source, path: Keys, spellings: list[Expression], where: Mapping[str, tuple[Condition, ...]]
    ) -> None:
        self._source, self._path, self._where = source, path, where
        self._captures = spellings[0].captures
        self._parameters = spellings[0].parameters
        everywhere = set(spellings[0].definitions).intersection(*(s.definitions for s in spellings))
        self._values = (*self._captures, *sorted(everywhere))
        self._operations = {name: spellings[0].operations.get(name, "") for name in self._values}

    def kernel(self, entry: CallEntry, kernels: Mapping[str, KernelBinding]) -> KernelBinding:
        if entry.name not in kernels:
            raise self._error(("name",), f"unknown kernel {entry.name!r}", suggest(entry.name, kernels))
        return kernels[entry.name]

    def operands(self, entry: CallEntry, kernel: KernelBinding) -> dict[str, str]:
        for operand, value in entry.operands.items():
            if operand not in kernel.operands:
                problem = f"{kernel.name} has no operand {operand!r}"
                raise self._key_error(("operands", operand), problem, suggest(operand, kernel.operands))
            if value not in self._captures:
                advice = suggest(value, self._captures)
                raise self._error(("operands", operand), f"{value!r} is not captured", advice)
            if self._is_constant(value):
                problem = f"{value} is a constant"
                raise self._error(("operands", operand), problem, f"pass it as an attribute: value({value})")
        if kernel.is_user_defined:
            self._complete("operands", entry.operands, kernel.operands, kernel)
        return {operand: entry.operands[operand] for operand in kernel.operands if operand in entry.operands}

    def attributes(self, entry: CallEntry, kernel: KernelBinding) -> dict[str, Attribute]:
        found = {name: self._attribute(("attributes", name), value) for name, value in entry.attributes.items()}
        described = bound_descriptions(kernel.describes, entry.operands, RESULT)
        found |= {name: fact for name, fact in described.items() if name not in found}
        if not kernel.is_user_defined:
            return found
        for name in found:
            if name not in kernel.attributes:
                problem = f"{kernel.name} has no attribute {name!r}"
                raise self._key_error(("attributes", name), problem, suggest(name, kernel.attributes))
            found[name] = self._typed(("attributes", name), found[name], declared_type(kernel.attributes[name]))
        self._complete("attributes", found, kernel.attributes, kernel)
        # In the order of the kernel's declaration, so that equal calls read alike.
        return {name: found[name] for name in kernel.attributes}

    def scratch(self, written: Any, kernel: KernelBinding) -> Attribute | None:
        if written is None:
            return None
        if not kernel.is_user_defined:
            raise self._error(("scratch",), f"{kernel.name} plans its own scratch memory", "remove it")
        return self._typed(("scratch",), self._attribute(("scratch",), written), "i64")

    def _attribute(self, where: Keys, written: Any) -> Attribute:
        try:
            attribute = read_attribute(written)
        except ValueError as error:
            raise self._error(where, f"{where[-1]} is {written!r}", str(error)) from None
        for fact in fact_queries(attribute):
            self._check_fact(where, fact)
        return attribute

    def _check_fact(self, where: Keys, fact: FactQuery) -> None:
        if fact.fact == "value":
            if fact.of in self._parameters or self._is_constant(fact.of):
                return
            if fact.of in self._captures:
                advice = f"demand it: where: {fact.of}: {{constant: true}}"
                raise self._error(where, f"{fact.of} need not be a constant", advice)
        if fact.of not in self._values:
            raise self._error(where, f"{fact.of!r} is not a value of the expression", suggest(fact.of, self._values))
        if fact.is_of_convolution and self._operations[fact.of] != "convolution":
            raise self._error(where, f"{fact.of} is no convolution", "name the convolution on a line of its own")

    def _typed(self, where: Keys, attribute: Attribute, expected: str) -> Attribute:
        have = type_of(attribute)
        if expected == F32 and have == "i64":
            return float(attribute)  # pyright: ignore[reportArgumentType]
        if have != expected:
            raise self._error(where, f"{where[-1]} is of type {have}", f"it should be {expected}")
        return attribute

    def _is_constant(self, name: str) -> bool:
        return any(condition.name in _OF_NUMBERS for condition in self._where.get(name, ()))

    def _complete(self, what: str, given: Mapping[str, Any], declared: Iterable[str], kernel: KernelBinding) -> None:
        missing = next((name for name in declared if name not in given), None)
        if missing is not None:
            problem = f"{kernel.name} is given no {missing}"
            raise self._key_error((what,), problem, f"add {missing}: ... to {what}")

    def _error(self, where: Keys, problem: str, advice: str) -> TableError:
        return self._source.error(self._source.location((*self._path, *where)), problem, advice)

    def _key_error(self, where: Keys, problem: str, advice: str) -> TableError:
        return self._source.error(self._source.key_location((*self._path, *where)), problem, advice)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
