"""Equal values of other nodes: functions that make again what was found at one node, compiled from source text.

Calls of nested functions would take several times as long, and a module has thousands of matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.epilogue.steps import Chain
from hlo_dispatch.match.fused_anchor import FusedAnchor

NOTHING: frozenset[Node] = frozenset()
Maker = Callable[[Sequence[Node]], Any]


def maker_of_values(values: tuple[Any, ...], places: dict[Node, int]) -> Maker | None:
    """A function that makes equal values of other nodes; None: they have no nodes, or some without places."""
    source = _Source(places)
    try:
        return source.compiled(values)
    except KeyError:
        return None


class _Source:
    """Source text of a function of nodes that makes a value."""

    def __init__(self, places: Mapping[Node, int]) -> None:
        self._places, self._lines = places, list[str]()
        self._constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        """Address of a value that has nodes inside → the variable that has its equal."""

    def compiled(self, value: Any) -> Maker | None:
        """The function; None: there are no nodes inside of the value.

        Raises:
            KeyError: a node inside has no place, or would have to be looked for.
        """
        made = self._of(value)
        if not made:
            return None
        lines = "".join(f"    {line}\n" for line in (*self._lines, f"return {made}"))
        exec(f"def make(nodes):\n{lines}", self._constants)
        return self._constants["make"]

    def _of(self, value: Any) -> str:
        """An expression for an equal value; empty: there are no nodes inside."""
        if isinstance(value, Node):
            return f"nodes[{self._places[value]}]"
        if isinstance(value, (dict, list, set, frozenset)):
            if _has_nodes(value):
                raise KeyError("a collection of nodes is not made again")
            return ""
        if id(value) not in self._names:
            made = self._of_parts(value)
            if not made:
                return ""
            name = self._names[id(value)] = f"made_{len(self._names)}"
            self._lines.append(f"{name} = {made}")
        return self._names[id(value)]

    def _of_parts(self, value: Any) -> str:
        if isinstance(value, partial):
            if value.keywords:
                raise KeyError("named arguments of a function are not made again")
            arguments: tuple[Any, ...] = value.args
            return self._call(partial, (value.func, *arguments)) if any([self._of(part) for part in arguments]) else ""
        if isinstance(value, tuple):
            parts = cast("tuple[Any, ...]", value)
            if not any([self._of(part) for part in parts]):
                return ""
            made_by: type[Any] = type(parts)
            return self._call(None if made_by is tuple else made_by, parts)
        if isinstance(value, (Anchor, Chain, FusedAnchor)):
            parts = vars(value) | ({"static": NOTHING} if isinstance(value, FusedAnchor) else {})
            made = {name: self._of(part) for name, part in parts.items()}
            constant = self._constant({name: part for name, part in parts.items() if not made[name]})
            varying = ", ".join(f"{name}={part}" for name, part in made.items() if part)
            return f"{self._constant(_with_fields)}({self._constant(type(value))}, {constant}, dict({varying}))"
        return ""

    def _call(self, function: Callable[..., Any] | None, arguments: Iterable[Any]) -> str:
        """A call, or a tuple without a function."""
        written = "".join(f"{self._of(argument) or self._constant(argument)}, " for argument in arguments)
        return f"({written})" if function is None else f"{self._constant(function)}({written})"

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = value
        return name


def _with_fields(made_of: type[Any], constant: Mapping[str, Any], varying: Mapping[str, Any]) -> Any:
    made: Any = object.__new__(made_of)
    made.__dict__.update(constant)
    made.__dict__.update(varying)
    return made


def _has_nodes(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*cast("dict[Any, Any]", value).items()]
    elif not isinstance(value, (list, set, frozenset, tuple)):
        return isinstance(value, Node)
    return any([_has_nodes(part) for part in cast("Iterable[Any]", value)])
