"""Formula language: expressions parsed against a whitelist, compiled to closures, evaluated in float64.

Python's own parser reads the text; Python's evaluator never runs any of it. Each node that is
not on the list is refused with its column, so a table from anywhere can be loaded safely.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_dispatch.pattern.functions import CONSTANTS, FUNCTIONS

MAX_LENGTH = 1000
"""Characters: enough for any activation, short enough that parsing cannot be made to hurt."""
MAX_NESTING = 60
"""Levels of nesting, so that neither compiling nor evaluating can exhaust the stack."""

Environment = Mapping[str, Any]
Closure = Callable[[Environment], Any]


class FormulaError(ValueError):
    """An invalid formula. `offset` counts characters from its start; the loader turns it into a TableError."""

    def __init__(self, problem: str, offset: int, advice: str = "") -> None:
        self.problem, self.offset, self.advice = problem, offset, advice
        super().__init__(problem + (f"; {advice}" if advice else ""))


@dataclass(frozen=True)
class Formula:
    """A checked expression. `evaluate` needs a value for each of `names`, and, if it has samples, `f`."""

    text: str
    names: frozenset[str]
    """The free names it really uses."""
    samples: tuple[float, ...]
    """The points of its `f(...)`, in order of appearance."""
    closure: Closure

    def evaluate(self, environment: Environment) -> Any:
        """The value; `environment["f"]` maps each sample point to the function's value there."""
        with np.errstate(all="ignore"):
            return self.closure(environment)


def parse(text: str, names: Iterable[str], *, samples: bool = False, condition: bool = False) -> Formula:
    """Checks `text`, an expression over `names` (and `f(point)` if `samples`), and compiles it."""
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"the formula has {len(text)} characters", MAX_LENGTH, f"{MAX_LENGTH} are allowed")
    try:
        tree = ast.parse(text.replace("\n", " ").strip() or "()", mode="eval")
    except SyntaxError as error:
        raise FormulaError(f"not an expression: {error.msg}", max((error.offset or 1) - 1, 0)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise FormulaError(f"not an expression: {error}", 0) from None
    compiler = _Compiler(text, frozenset(names), samples)
    is_condition, closure = compiler.compile(tree.body)
    if is_condition is not condition:
        expected = "a condition such as low < high" if condition else "a number: where(condition, a, b)"
        raise FormulaError("this is a number" if condition else "this is a condition", 0, f"write {expected}")
    return Formula(text, frozenset(compiler.used), tuple(dict.fromkeys(compiler.points)), closure)


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.true_divide,
    ast.Pow: np.power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ADVICE: dict[type[ast.AST], str] = {
    ast.BitXor: "a power is written x**2 or pow(x, 2)",
    ast.BitAnd: "write a < b and b < c",
    ast.BitOr: "write a < b or b < c",
    ast.IfExp: "write where(condition, a, b)",
    ast.FloorDiv: "write floor(a / b)",
}


_SYMBOLS: dict[type[ast.operator], str] = {
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
}


class _Compiler:
    """Compiler from AST nodes to (is it a condition?, closure); records the names and samples used."""

    def __init__(self, text: str, names: frozenset[str], samples: bool) -> None:
        self.names, self.samples = names, samples
        self.indent = len(text) - len(text.lstrip())
        self.used: set[str] = set()
        self.points: list[float] = []
        self.depth = 0

    def fail(self, node: ast.AST, problem: str, advice: str = "") -> FormulaError:
        return FormulaError(problem, self.indent + getattr(node, "col_offset", 0), advice)

    def compile(self, node: ast.AST) -> tuple[bool, Closure]:
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is None:
            advice = _ADVICE.get(type(node), "a formula is arithmetic and calls of the whitelisted functions")
            raise self.fail(node, _description(node), advice)
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.fail(node, "nested too deeply", f"{MAX_NESTING} levels are allowed")
        result = handler(node)
        self.depth -= 1
        return result

    def number(self, node: ast.AST) -> Closure:
        is_condition, closure = self.compile(node)
        if is_condition:
            raise self.fail(node, "a condition where a number is wanted", "write where(condition, a, b)")
        return closure

    def condition(self, node: ast.AST) -> Closure:
        is_condition, closure = self.compile(node)
        if not is_condition:
            raise self.fail(node, "a number where a condition is wanted", "write a comparison such as x > 0")
        return closure

    def _Constant(self, node: ast.Constant) -> tuple[bool, Closure]:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self.fail(node, f"{node.value!r} is not a number", "only numbers may be written")
        try:
            value = np.float64(node.value)
        except OverflowError:
            raise self.fail(node, "the number is too large", "write inf for infinity") from None
        return False, lambda environment: value

    def _Name(self, node: ast.Name) -> tuple[bool, Closure]:
        name = node.id
        if name in self.names:
            self.used.add(name)
            return False, operator.itemgetter(name)
        if name in CONSTANTS:
            value = np.float64(CONSTANTS[name])
            return False, lambda environment: value
        if name in FUNCTIONS or name == "f":
            raise self.fail(node, f"{name} is a function", f"write {name}(...)")
        known = [*sorted(self.names), *CONSTANTS]
        raise self.fail(node, f"unknown name {name!r}", _nearest(name, known))

    def _UnaryOp(self, node: ast.UnaryOp) -> tuple[bool, Closure]:
        if isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            return True, lambda environment: np.logical_not(inner(environment))
        if isinstance(node.op, ast.Invert):
            raise self.fail(node, "the operator ~ is not allowed", "write not(condition) or 1 - x")
        operand = self.number(node.operand)
        if isinstance(node.op, ast.UAdd):
            return False, operand
        return False, lambda environment: -operand(environment)

    def _BinOp(self, node: ast.BinOp) -> tuple[bool, Closure]:
        function = _ARITHMETIC.get(type(node.op))
        if function is None:
            advice = _ADVICE.get(type(node.op), "the operators are + - * / **")
            raise self.fail(node, f"the operator {_SYMBOLS[type(node.op)]} is not allowed", advice)
        left, right = self.number(node.left), self.number(node.right)
        return False, lambda environment: function(left(environment), right(environment))

    def _Compare(self, node: ast.Compare) -> tuple[bool, Closure]:
        parts = [self.number(part) for part in (node.left, *node.comparators)]
        tests: list[Closure] = []
        for comparison, left, right in zip(node.ops, parts, parts[1:], strict=False):
            function = _COMPARISONS.get(type(comparison))
            if function is None:
                raise self.fail(node, "this comparison is not allowed", "the comparisons are < <= > >= == !=")
            tests.append(_binary(function, left, right))
        return True, _chain(np.logical_and, tests)

    def _BoolOp(self, node: ast.BoolOp) -> tuple[bool, Closure]:
        function = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return True, _chain(function, [self.condition(value) for value in node.values])

    def _Call(self, node: ast.Call) -> tuple[bool, Closure]:
        if not isinstance(node.func, ast.Name):
            raise self.fail(node, _description(node.func), "only functions of the whitelist may be called")
        name = node.func.id
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self.fail(node, f"{name}(...) with keyword or starred arguments", "write plain arguments")
        if name == "f" and self.samples:
            return self._sample(node)
        function = FUNCTIONS.get(name)
        if function is None:
            raise self.fail(node, f"unknown function {name!r}", _nearest(name, FUNCTIONS))
        count = len(node.args)
        if count < function.arity or (count > function.arity and not function.variadic):
            at_least = "at least " if function.variadic else ""
            raise self.fail(node, f"{name} with {count} arguments", f"it takes {at_least}{function.arity}")
        arguments = [
            self.condition(argument) if position in function.conditions else self.number(argument)
            for position, argument in enumerate(node.args)
        ]
        return function.yields_condition, _call(function.evaluate, arguments)

    def _sample(self, node: ast.Call) -> tuple[bool, Closure]:
        """`f(point)`: the region's value there. Points must be known before any region is seen."""
        if len(node.args) != 1:
            raise self.fail(node, f"f with {len(node.args)} arguments", "it takes 1, the sample point")
        inner = _Compiler("", frozenset(), samples=False)
        inner.indent = self.indent
        closure = inner.number(node.args[0])
        with np.errstate(all="ignore"):
            point = float(closure({}))
        if np.isnan(point):
            raise self.fail(node, "f is sampled at NaN", "sample at a number or at inf")
        self.points.append(point)
        return False, lambda environment: environment["f"][point]


def _binary(function: Callable[[Any, Any], Any], left: Closure, right: Closure) -> Closure:
    return lambda environment: function(left(environment), right(environment))


def _chain(function: Callable[[Any, Any], Any], parts: list[Closure]) -> Closure:
    result = parts[0]
    for part in parts[1:]:
        result = _binary(function, result, part)
    return result


def _call(function: Callable[..., Any], arguments: list[Closure]) -> Closure:
    if len(arguments) == 1:
        (only,) = arguments
        return lambda environment: function(only(environment))
    return lambda environment: function(*[argument(environment) for argument in arguments])


def _description(node: ast.AST) -> str:
    names: dict[type[ast.AST], str] = {
        ast.Attribute: "attribute access",
        ast.Subscript: "indexing",
        ast.Lambda: "a lambda",
        ast.IfExp: "'a if condition else b'",
        ast.NamedExpr: "an assignment",
        ast.JoinedStr: "a string",
    }
    what = names.get(type(node), f"{type(node).__name__}")
    return "the formula is empty" if isinstance(node, ast.Tuple) and not node.elts else f"{what} is not allowed"


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
