"""Structural expression parser: `swish(x, beta) + residual`, or several lines where inner values have names.

Python's parser reads the text and Python's evaluator never runs any of it; every node that is
not on the list is refused at its line and column.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from hlo_dispatch.pattern.constraints import CONSTRAINTS, REQUIRED, Condition, InvalidArgument
from hlo_dispatch.pattern.expression import (
    OPERATIONS,
    ActivationCall,
    AnyOf,
    Capture,
    Expression,
    Inner,
    Number,
    Operation,
    Term,
    in_every_match,
    most_operations,
)
from hlo_dispatch.pattern.functions import CONSTANTS
from hlo_dispatch.pattern.messages import suggest

MAX_LENGTH = 4000
MAX_NESTING = 40
MAX_OPERATIONS = 64
"""Operations: enough for attention, small enough that matching cannot be made to hurt."""
RESULT = "result"

_INFIX: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
_CHOICES = ("any_of", "optional")
_PEELED = ("bitcast", "bitcast_convert", "convert", "copy", "reshape")
_NAMES_IN_OTHER_LANGUAGES = {
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log1p": "log_plus_one",
    "max": "maximum",
    "min": "minimum",
    "matmul": "dot",
    "neg": "negate",
    "cos": "cosine",
    "sin": "sine",
    "where": "select",
    "compare": "greater",
    "reduce": "reduce_add",
    "sum": "reduce_add",
}


class ExpressionError(ValueError):
    """An invalid expression, with line and column (both from 0) in its text."""

    def __init__(self, problem: str, line: int, column: int, advice: str = "") -> None:
        self.problem, self.line, self.column, self.advice = problem, line, column, advice
        super().__init__(problem)


def read_expression(text: str, activations: Mapping[str, Sequence[str]]) -> Expression:
    """Parses and checks one spelling.

    Args:
        activations: name → names of its parameters, for every activation of the table.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters", 0, 0, f"{MAX_LENGTH} are allowed")
    try:
        statements = ast.parse(text).body
    except SyntaxError as error:
        line, column = (error.lineno or 1) - 1, (error.offset or 1) - 1
        # In a list between brackets YAML ends a text at its first comma.
        advice = "put it in quotes if it stands between [ and ]" if "never closed" in error.msg else ""
        raise ExpressionError(f"not an expression: {error.msg}", line, max(column, 0), advice) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"not an expression: {error}", 0, 0) from None
    if not statements:
        raise ExpressionError("the expression is empty", 0, 0, "write what is matched, such as x * sigmoid(x)")
    return _Reader(activations).read(statements)


class _Reader:
    def __init__(self, activations: Mapping[str, Sequence[str]]) -> None:
        self._activations = activations
        self._captures: dict[str, Capture] = {}
        self._definitions: dict[str, Inner] = {}
        self._parameters: dict[str, None] = {}
        self._used: set[str] = set()
        self._alternatives: list[tuple[ast.expr, Term]] = []
        self._depth = 0
        self._count = 0

    def read(self, statements: list[ast.stmt]) -> Expression:
        for statement in statements[:-1]:
            if not isinstance(statement, ast.Assign):
                advice = "each line but the last is name = expression"
                raise self._error(statement, "a line that gives no name to its value", advice)
            self._define(statement)
        last = statements[-1]
        if isinstance(last, ast.Assign):
            raise self._error(last, "the last line gives its value a name", f"the last line is the {RESULT}")
        if not isinstance(last, ast.Expr):
            raise self._error(last, "this is a statement", "write an expression such as x * sigmoid(x)")
        root = self._operation(last.value, RESULT)
        self._definitions[RESULT] = root
        unused = next((name for name in self._definitions if name not in self._used | {RESULT}), None)
        if unused is not None:
            line = next(s for s in statements if isinstance(s, ast.Assign) and _target(s) == unused)
            raise self._error(line, f"{unused} is not used", "use it or remove it")
        if not self._captures:
            raise self._error(last, "nothing is captured", "name at least one value, such as x")
        both = next((name for name in self._parameters if name in self._captures), None)
        if both is not None:
            raise self._error(last, f"{both} is both a value and a parameter", "choose another name for one of them")
        always = in_every_match(root, _names)
        self._check_alternatives(always)
        return Expression(
            root, tuple(self._captures), tuple(self._parameters),
            tuple(name for name in self._definitions if name in always),
            {name: _word(term) for name, term in self._definitions.items()}, most_operations(root),
        )  # fmt: skip

    def _check_alternatives(self, always: frozenset[str]) -> None:
        """Refuses an alternative without a value that others capture and nothing else does."""
        sometimes = {*self._captures, *self._parameters} - always
        for node, term in self._alternatives:
            missing = sometimes - in_every_match(term, _names)
            if missing:
                advice = "every alternative names it, or it is named outside of them"
                raise self._error(node, f"this alternative does not name {min(missing)}", advice)

    def _define(self, statement: ast.Assign) -> None:
        name = _target(statement)
        if name is None:
            raise self._error(statement, "only a name may stand on the left of =", "write name = expression")
        if name in (RESULT, *OPERATIONS, *self._activations, *CONSTANTS):
            raise self._error(statement, f"{name!r} cannot be a name", "the language uses it itself")
        if name in self._definitions or name in self._captures:
            raise self._error(statement, f"{name} has a meaning already", "choose another name")
        self._definitions[name] = self._operation(statement.value, name)

    def _operation(self, node: ast.expr, name: str) -> Inner:
        term = self._term(node, name)
        if isinstance(term, Capture | Number) or term.name != name:
            raise self._error(node, "this is not an operation", "a named value and the result are operations")
        if name == RESULT and not _is_operation(term):
            advice = "without it nothing is left to match: make it required, or optional further inside"
            raise self._error(node, f"the {RESULT} may be no operation", advice)
        return term

    def _term(self, node: ast.expr, name: str = "") -> Term:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._error(node, "nested too deeply", f"{MAX_NESTING} levels are allowed")
        term = self._read_term(node, name)
        self._depth -= 1
        return term

    def _read_term(self, node: ast.expr, name: str) -> Term:
        number = _number(node)
        if number is not None:
            return Number(number)
        match node:
            case ast.Name():
                return self._named(node)
            case ast.BinOp(op=ast.MatMult()):
                plain = (Condition("product", "plain"),)
                return self._made(node, "dot", [node.left, node.right], plain, name)
            case ast.BinOp() if type(node.op) in _INFIX:
                return self._made(node, _INFIX[type(node.op)], [node.left, node.right], (), name)
            case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _INFIX:
                return self._made(node, _INFIX[type(node.ops[0])], [node.left, *node.comparators], (), name)
            case ast.UnaryOp(op=ast.USub()):
                return self._made(node, "negate", [node.operand], (), name)
            case ast.Call(func=ast.Name()):
                return self._called(node, name)
            case _:
                advice = "an expression is made of operations, names and numbers"
                raise self._error(node, f"{_description(node)} is not allowed", advice)

    def _named(self, node: ast.Name) -> Term:
        name = node.id
        if name in self._definitions:
            self._used.add(name)
            return self._definitions[name]
        if name in OPERATIONS or name in self._activations:
            raise self._error(node, f"{name} is an operation", f"write {name}(...)")
        if name == RESULT or not (name.islower() and name.isascii()):
            advice = "names are lower case letters, digits and _, and not result"
            raise self._error(node, f"{name!r} cannot be a name", advice)
        return self._captures.setdefault(name, Capture(name))

    def _called(self, node: ast.Call, name: str) -> Term:
        assert isinstance(node.func, ast.Name)
        word = node.func.id
        if word in _CHOICES:
            return self._choice(node, word, name)
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._error(node, f"{word}(...) with starred arguments", "write plain arguments")
        if word in _PEELED:
            raise self._error(node, f"{word} is not written", "changes of shape and of float type are peeled")
        if word not in self._activations and word not in OPERATIONS:
            known = [*self._activations, *OPERATIONS, *_CHOICES]
            raise self._error(node, f"unknown operation {word!r}", _nearest(word, known))
        conditions = tuple(self._condition(keyword, word) for keyword in node.keywords)
        if word in self._activations:
            return self._applied(node, word, conditions, name)
        return self._made(node, word, node.args, conditions, name)

    def _choice(self, node: ast.Call, word: str, name: str) -> AnyOf:
        if node.keywords:
            raise self._error(node.keywords[0], f"{word} with a constraint", "constraints stand inside it")
        if word == "optional":
            return self._optional(node, name)
        if len(node.args) < 2:
            advice = "write two or more, any_of(x * y, x / z)"
            raise self._error(node, "any_of of fewer than two alternatives", advice)
        alternatives: list[Term] = []
        before, parameters = dict(self._parameters), dict(self._parameters)
        for argument in node.args:
            self._parameters = dict(before)  # every alternative may bind the same ones
            alternatives.append(self._term(argument))
            self._alternatives.append((argument, alternatives[-1]))
            parameters |= self._parameters
        self._parameters = parameters
        return AnyOf(tuple(alternatives), name)

    def _optional(self, node: ast.Call, name: str) -> AnyOf:
        """The operation or, in its absence, its first operand."""
        term = self._term(node.args[0]) if len(node.args) == 1 else None
        operand = term.arguments[0] if isinstance(term, Operation) else None
        operand = term.argument if isinstance(term, ActivationCall) else operand
        if term is None or isinstance(term, Capture | Number | AnyOf) or term.name or operand is None:
            advice = "write the operation in it, optional(maximum(x, 0)): the operation, or x alone"
            raise self._error(node, "optional is of one operation", advice)
        self._alternatives.append((node.args[0], operand))
        return AnyOf((term, operand), name)

    def _made(
        self, node: ast.expr, word: str, arguments: list[ast.expr], conditions: tuple[Condition, ...], name: str
    ) -> Operation:
        self._count_one(node)
        arity = OPERATIONS[word].arity
        if len(arguments) != arity:
            raise self._error(node, f"{word} with {len(arguments)} arguments", f"it takes {arity}")
        for required in REQUIRED.get(word, ()):
            if all(condition.name != required for condition in conditions):
                raise self._error(node, f"{word} does not say {required}", f"write {word}(..., {required}=...)")
        read = tuple(self._term(argument) for argument in arguments)
        if all(isinstance(term, Number) for term in read):
            raise self._error(node, f"{word} of numbers alone", "write the number it is")
        return Operation(word, read, conditions, name)

    def _applied(self, node: ast.Call, word: str, conditions: tuple[Condition, ...], name: str) -> ActivationCall:
        self._count_one(node)
        expected = ("x", *self._activations[word])
        if len(node.args) != len(expected):
            advice = f"it takes {len(expected)}: {', '.join(expected)}"
            raise self._error(node, f"{word} with {len(node.args)} arguments", advice)
        argument = self._term(node.args[0])
        if isinstance(argument, Number):
            raise self._error(node, f"{word} of a number", "write the number it is")
        return ActivationCall(word, argument, tuple(self._parameter(item) for item in node.args[1:]), conditions, name)

    def _parameter(self, node: ast.expr) -> str | float:
        number = _number(node)
        if number is not None:
            return number
        if not isinstance(node, ast.Name) or not node.id.islower() or node.id == RESULT:
            raise self._error(node, "an activation's parameter is a name or a number", "write its value, or a name")
        if node.id in self._parameters or node.id in self._definitions:
            raise self._error(node, f"{node.id} has a meaning already", "each parameter has a name of its own")
        self._parameters[node.id] = None
        return node.id

    def _condition(self, keyword: ast.keyword, word: str) -> Condition:
        name = keyword.arg or "**"
        constraint = CONSTRAINTS.get(name)
        if constraint is None:
            raise self._error(keyword, f"unknown constraint {name!r}", suggest(name, CONSTRAINTS))
        if constraint.operations and word not in constraint.operations:
            advice = f"it is for {', '.join(constraint.operations)}"
            raise self._error(keyword, f"{name} says nothing of {word}", advice)
        try:
            return Condition(name, constraint.read(_plain(keyword.value)))
        except InvalidArgument as error:
            raise self._error(keyword.value, f"{name} is {ast.unparse(keyword.value)}", str(error)) from None

    def _count_one(self, node: ast.expr) -> None:
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise self._error(node, f"more than {MAX_OPERATIONS} operations", "split the pattern")

    def _error(self, node: Any, problem: str, advice: str = "") -> ExpressionError:
        return ExpressionError(problem, node.lineno - 1, node.col_offset, advice)


def _description(node: ast.expr) -> str:
    match node:
        case ast.Call():
            return f"a call of {ast.unparse(node.func)}"
        case ast.Constant():
            return repr(node.value)
        case ast.Attribute():
            return f"the attribute {node.attr}"
        case ast.Compare():
            return "a chain of comparisons" if len(node.ops) > 1 else "this comparison"
        case _:
            return f"{type(node).__name__}"


def _nearest(word: str, known: list[str]) -> str:
    if word in _NAMES_IN_OTHER_LANGUAGES:
        return f"did you mean {_NAMES_IN_OTHER_LANGUAGES[word]!r}?"
    advice = suggest(word, known)
    return advice if advice.startswith("did") else "operations and activations are listed in patterns/README.md"


def _target(statement: ast.Assign) -> str | None:
    only = statement.targets[0]
    name = only.id if len(statement.targets) == 1 and isinstance(only, ast.Name) else ""
    return name if name.islower() and name.isascii() else None


def _word(term: Inner) -> str:
    match term:
        case Operation():
            return term.word
        case ActivationCall():
            return term.activation
        case AnyOf():
            return "any_of"


def _names(term: Term) -> tuple[str, ...]:
    """The names that a term binds itself."""
    if isinstance(term, Number):
        return ()
    parameters = term.parameters if isinstance(term, ActivationCall) else ()
    return (term.name, *(parameter for parameter in parameters if isinstance(parameter, str)))


def _is_operation(term: Term) -> bool:
    if isinstance(term, AnyOf):
        return all(map(_is_operation, term.alternatives))
    return isinstance(term, Operation | ActivationCall)


def _number(node: ast.expr) -> float | None:
    """The number of a node: a literal, pi, inf, or the negative of one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Name):
        return CONSTANTS.get(node.id)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        try:
            return float(node.value)  # pyright: ignore[reportArgumentType]
        except OverflowError:
            return None
    return None


def _plain(node: ast.expr) -> Any:
    """A keyword's value as YAML would have given it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _plain(node.operand)
        return -inner if type(inner) in (int, float) else None
    return None
