"""Dependency traces: all that a function of a node read of the graph, recorded once and compared at other nodes.

A match is found by walking from an anchor op to the values around it. Where every step of that walk reads the same at
another node, the walk ends there with the same match, of the nodes at the same places: nothing else was read. So the
trace is the key of a memo, whatever the walk depends on: shapes, constants, layouts, further users, control
dependencies, which matches own a value.

Recording exchanges the class of each node that is reached for one whose attributes are properties. What cannot be
compared, since it belongs to one node only (names, ids, other computations), makes the trace unusable.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant

Predicate = Callable[[Node], bool]
Found = TypeVar("Found")
Value = TypeVar("Value")

_SAME, _LINKS, _SCALAR, _IS_PRESENT, _FIELD, _MEMBER, _COMPUTED = _KINDS = range(7)
_OF_ONE_INSTRUCTION = frozenset(("id", "metadata", "name", "operand_ids", "control_predecessor_ids"))


class _Current(threading.local):
    """The recorder of this thread."""

    recorder: _Recorder | None = None


_current = _Current()


class Trace(NamedTuple):
    """What a walk read; nodes by their places: the numbers in the order in which the walk reached them."""

    reads: tuple[tuple[int, Callable[[Node], Any], tuple[Any, ...] | None, Any], ...]
    """Of a node: attributes and what they were; or, without these, operands or users and their places."""
    scalars: tuple[tuple[int, float | None], ...]
    fields: tuple[tuple[int, str, Any], ...]
    """Fields of messages."""
    present: tuple[tuple[int, bool], ...]
    """Whether a value is a top-level instruction's."""
    asked: tuple[tuple[int, bool, tuple[int, ...]], ...]
    """Number of a predicate, its answer, and of which nodes."""
    in_order: tuple[int, ...]
    """Places of the nodes whose order in the graph was read, in this order."""
    computed: tuple[tuple[int, Callable[[Node, FlatGraph], Any], Any], ...]
    """Functions of a node and its graph whose values were read, and the values."""

    def follow(self, node: Node, predicates: Sequence[Predicate], graph: FlatGraph) -> list[Node] | None:
        """The nodes that the walk would reach from another node; None: it reads something else there."""
        nodes = self._reached(node)
        if nodes is None:
            return None
        if not (self._has_equal_values(nodes) and self._has_equal_order(nodes)):
            return None
        for number, answer, places in self.asked:
            if not _all_answer(predicates[number], [nodes[place] for place in places], answer=answer):
                return None
        for place, function, value in self.computed:
            if function(nodes[place], graph) != value:
                return None
        return nodes

    def _has_equal_values(self, nodes: Sequence[Node]) -> bool:
        for place, number in self.scalars:
            if not _is_same_number(scalar_constant(nodes[place]), number):
                return False
        for place, is_present in self.present:
            if (nodes[place].top_level_id is not None) is not is_present:
                return False
        for place, name, value in self.fields:
            if _comparable(getattr(nodes[place].proto, name)) != value:
                return False
        return True

    def _has_equal_order(self, nodes: Sequence[Node]) -> bool:
        last = -1
        for place in self.in_order:
            index = nodes[place].index
            if index <= last:
                return False
            last = index
        return True

    def _reached(self, node: Node) -> list[Node] | None:
        nodes, count = [node], 1
        for place, read, values, linked in self.reads:
            found = read(nodes[place])
            if values is not None:
                if found != values:
                    return None
            elif len(found) != len(linked):
                return None
            else:
                for other, expected in zip(found, linked):  # noqa: B905 - as many, and called thousands of times
                    if expected == count:
                        nodes.append(other)
                        count += 1
                    elif nodes[expected] is not other:
                        return None
        return nodes if len(set(nodes)) == count else None


def _is_same_number(one: float | None, other: float | None) -> bool:
    """Bit for bit, but for NaN: 0 is not -0."""
    if one is None or other is None:
        return one is other
    return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)


def _all_answer(predicate: Predicate, nodes: Sequence[Node], *, answer: bool) -> bool:
    """Whether a predicate has this answer for all these nodes; sets are asked at once (ownership.py)."""
    members: set[Node] | None = getattr(predicate, "members", None)
    if members is None:
        return all([predicate(node) is answer for node in nodes])
    asked: set[Node] = getattr(predicate, "asked")  # noqa: B009
    asked.update(nodes)
    return members.issuperset(nodes) if answer else members.isdisjoint(nodes)


def record(
    function: Callable[[Sequence[Predicate]], Found], node: Node, predicates: Sequence[Predicate]
) -> tuple[Found, Trace | None, list[Node]]:
    """Call a function that walks from a node; returns its result, the trace, and the nodes that it reached.

    Args:
        function: takes the predicates, which it asks in place of the original ones.
    """
    assert _current.recorder is None, "one walk is recorded at a time"
    recorder = _current.recorder = _Recorder()
    try:
        recorder.place(node)
        found = function([recorder.predicate(number, asked) for number, asked in enumerate(predicates)])
    finally:
        _current.recorder = None
        for reached in recorder.nodes:
            reached.__class__ = Node
    return found, recorder.trace(), recorder.nodes


def compared_by_value(function: Callable[[Node, FlatGraph], Value], node: Node, graph: FlatGraph) -> Value:
    """A function's value for a node, which is compared where a walk is recorded, not what the function reads."""
    recorder = _current.recorder
    if recorder is None:
        return function(node, graph)
    _current.recorder = None
    try:
        value = function(node, graph)
    finally:
        _current.recorder = recorder
    recorder.note(_COMPUTED, node, function, value)
    return value


class _Recorder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._places: dict[Node, int] = {}
        self._reads: dict[tuple[int, int, Any], Any] = {}
        self._ordered: set[int] = set()
        self.is_usable = True

    def place(self, node: Node) -> int:
        known = self._places.get(node)
        if known is None:
            known = self._places[node] = len(self.nodes)
            self.nodes.append(node)
            node.__class__ = _RecordedNode
        return known

    def note(self, kind: int, node: Node, name: Any, answer: Any) -> None:
        place = self._places.get(node)
        if place is None:
            self.is_usable = False
        else:
            self._reads.setdefault((kind, place, name), answer)

    def note_order(self, node: Node) -> None:
        self._ordered.add(self._places[node])

    def predicate(self, number: int, asked: Predicate) -> Predicate:
        def recorded(node: Node) -> bool:
            answer = asked(node)
            self.note(_MEMBER, node, number, answer)
            return answer

        return recorded

    def trace(self) -> Trace | None:
        if not self.is_usable:
            return None
        same: dict[int, list[tuple[str, Any]]] = {}
        asked: dict[tuple[int, bool], list[int]] = {}
        of_kind: dict[int, list[tuple[int, Any, Any]]] = {kind: [] for kind in _KINDS}
        for (kind, place, name), answer in self._reads.items():
            of_kind[kind].append((place, name, answer))
            if kind == _SAME:
                same.setdefault(place, []).append((str(name), answer))
            elif kind == _MEMBER:
                asked.setdefault((int(name), answer), []).append(place)
        reads: list[tuple[int, Callable[[Node], Any], tuple[Any, ...] | None, Any]] = []
        for kind, place, name in self._reads:
            if kind == _LINKS:
                reads.append((place, attrgetter(str(name)), None, self._reads[kind, place, name]))
            elif kind == _SAME and place in same:
                attributes = same.pop(place)
                names = [attribute for attribute, _ in attributes]
                # One more, since the getter of a single one returns no tuple.
                reads.append(
                    (place, attrgetter(*names, names[0]), (*[v for _, v in attributes], attributes[0][1]), None)
                )
        return Trace(
            tuple(reads),
            tuple([(place, answer) for place, _, answer in of_kind[_SCALAR]]),
            tuple([(place, name, answer) for place, name, answer in of_kind[_FIELD]]),
            tuple([(place, answer) for place, _, answer in of_kind[_IS_PRESENT]]),
            tuple([(*key, tuple(places)) for key, places in asked.items()]),
            tuple(sorted(self._ordered, key=lambda place: self.nodes[place].index)),
            tuple(of_kind[_COMPUTED]),
        )


class _RecordedNode(Node):
    """A node of a graph while a walk is recorded."""

    __slots__ = ()


class _RecordedProto:
    """The message of such a node."""

    __slots__ = ("_node", "_proto")

    def __init__(self, node: Node, proto: Message) -> None:
        self._node, self._proto = node, proto

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        if _current.recorder is not None:
            _current.recorder.is_usable = False  # which of two instructions it is belongs to one
        return self._proto == (other._proto if isinstance(other, _RecordedProto) else other)

    def __getattr__(self, name: str) -> Any:
        recorder = _current.recorder
        found = getattr(self._proto, name)
        if recorder is None:
            return found
        if name in _OF_ONE_INSTRUCTION or name.startswith("called") or callable(found):
            recorder.is_usable = False
        else:
            recorder.note(_FIELD, self._node, name, _comparable(found))
        return found


def _comparable(value: Any) -> Any:
    """A field's value, or the bytes of its messages."""
    if isinstance(value, Message):
        return value.SerializeToString(deterministic=True)
    return value if isinstance(value, (str, bytes, int, float)) else tuple(map(_comparable, value))


def _recorded(name: str, read: Callable[[_Recorder, Node, Any], Any]) -> property:
    slot: Any = Node.__dict__[name]

    def get(node: Node) -> Any:
        value = slot.__get__(node)
        recorder = _current.recorder
        return value if recorder is None else read(recorder, node, value)

    return property(get, slot.__set__)


def _same(name: str) -> property:
    def read(recorder: _Recorder, node: Node, value: Any) -> Any:
        recorder.note(_SAME, node, name, value)
        return value

    return _recorded(name, read)


def _links(name: str) -> property:
    def read(recorder: _Recorder, node: Node, value: Sequence[Node]) -> Sequence[Node]:
        recorder.note(_LINKS, node, name, tuple([recorder.place(linked) for linked in value]))
        return value

    return _recorded(name, read)


def _read_scalar(recorder: _Recorder, node: Node, value: float | bool | None) -> float | None:
    _current.recorder = None  # its value is compared, not what it was computed from
    try:
        number = scalar_constant(node)
    finally:
        _current.recorder = recorder
    recorder.note(_SCALAR, node, "scalar", number)
    return number


def _read_top_level(recorder: _Recorder, node: Node, value: int | None) -> int | None:
    recorder.note(_IS_PRESENT, node, "top_level_id", value is not None)
    return value


def _read_index(recorder: _Recorder, node: Node, value: int) -> int:
    recorder.note_order(node)
    return value


def _read_producers(recorder: _Recorder, node: Node, value: list[int]) -> list[int]:
    recorder.is_usable = False
    return value


def _read_proto(recorder: _Recorder, node: Node, value: Message) -> _RecordedProto:
    return _RecordedProto(node, value)


for _name in ("has_control_predecessors", "is_live_out", "opcode", "shape"):
    setattr(_RecordedNode, _name, _same(_name))
for _name in ("operands", "users"):
    setattr(_RecordedNode, _name, _links(_name))
for _name, _read in (
    ("index", _read_index),
    ("producers", _read_producers),
    ("proto", _read_proto),
    ("scalar", _read_scalar),
    ("top_level_id", _read_top_level),
):
    setattr(_RecordedNode, _name, _recorded(_name, _read))
