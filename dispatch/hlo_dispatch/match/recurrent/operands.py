"""Operands of a recurrent call: values in front of the loop, joined where the kernel reads one array for several.

A kernel reads all gates' weights as one matrix and all biases as one array. Where the program has one for each gate,
or adds several, the instructions that join them are emitted in front of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import View, full_view
from hlo_dispatch.ir.literals import literal_of, memory_of
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.match.recurrent.products import narrowed

# New nodes have larger indices than all nodes of a graph.
_FIRST = 1 << 41
_indices = count(_FIRST)


class OperandBuilder:
    """Builder of nodes that no module contains yet."""

    def __init__(self, origin: Node) -> None:
        """`origin`: the instruction in front of which they are emitted."""
        self._origin = origin
        self._constants: dict[tuple[Node, str], Node] = {}
        self.reads: list[Node] = []
        """The values that the new nodes are computed from."""

    def constant(self, node: Node) -> Node:
        """A constant of the loop's body, in front of the loop."""
        key = node, node.shape.element_type
        if key not in self._constants:
            self._constants[key] = self._node("constant", node.shape, ())
            self._constants[key].proto.literal.CopyFrom(node.proto.literal)
        return self._constants[key]

    def narrowed(self, view: View) -> View:
        """The view over the half precision numbers of which it has the values; else the view itself.

        XLA widens constants while it compiles.
        """
        found, node = narrowed(view), view.node
        is_wide_constant = node.opcode == "constant" and node.shape.element_type == "f32"
        elements = memory_of(node.proto.literal) if is_wide_constant and found is view else None
        if elements is None:
            return found
        bits = np.frombuffer(elements, np.uint32)
        if (bits & 0xFFFF).any():
            return view
        if (node, "bf16") not in self._constants:
            shape = replace(node.shape, element_type="bf16")
            half = self._node("constant", shape, ())
            literal = literal_of(shape, (bits >> 16).astype(np.uint16).tobytes())
            assert literal is not None, "bf16 has literals"
            half.proto.literal.CopyFrom(literal)
            self._constants[node, "bf16"] = half
        return view._replace(node=self._constants[node, "bf16"])

    def matrix(self, parts: Sequence[View]) -> View | None:
        """The views (inputs, columns) side by side along their columns; None: they do not lie alike."""
        first = parts[0]
        if len(parts) == 1:
            return first
        shape, numbers = first.node.shape, [_dimension(first, place) for place in (0, 1)]
        rows, (columns, stride) = first.dimensions
        at = (first._replace(offset=first.offset + n * columns * stride) for n in range(len(parts)))
        if all(part == wanted for part, wanted in zip(parts, at, strict=True)):
            return View(first.node, (rows, (len(parts) * columns, stride)), first.offset)
        is_whole = full_view(first.node).dimensions
        if None in numbers or numbers[0] == numbers[1] or len(is_whole) != 2:
            return None
        if any(part.node.shape != shape or part.dimensions != first.dimensions or part.offset for part in parts):
            return None
        row, column = (number for number in numbers if number is not None)
        sizes = list(shape.dimensions)
        sizes[column] *= len(parts)
        joined = self._concatenate(
            [part.node for part in parts], Shape(shape.element_type, tuple(sizes), shape.minor_to_major), column
        )
        dimensions = joined.shape.strided_dimensions
        return View(joined, (dimensions[row], dimensions[column]))

    def bias(self, gates: Sequence[Sequence[tuple[Node, int]]], offsets: Sequence[float], units: int) -> View | None:
        """Each gate's sum of vectors, given as (array, its first element), and constant; None: there are none."""
        if not any(gates) and not any(offsets):
            return None
        dimensions = ((len(gates), units), (units, 1))
        whole = gates[0][0][0] if gates[0] else None
        if (
            whole is not None
            and not any(offsets)
            and whole.shape.element_type == "f32"
            and whole.shape.elements == len(gates) * units
        ):
            if all(list(gate) == [(whole, place * units)] for place, gate in enumerate(gates)):
                return View(whole, ((len(gates), units), (units, 1)))
        vectors: list[Node] = []
        for gate, offset in zip(gates, offsets, strict=True):
            summands = [self._vector(node, first, units) for node, first in gate]
            if offset or not summands:
                summands.append(self._repeated(offset, units))
            total = summands[0]
            for other in summands[1:]:
                total = self._node("add", total.shape, (total, other))
            vectors.append(total)
        if len(vectors) == 1:
            return View(vectors[0], dimensions)
        return View(self._concatenate(vectors, row_major("f32", (len(vectors) * units,)), 0), dimensions)

    def _vector(self, node: Node, first: int, units: int) -> Node:
        """Elements of an array in memory order, in f32."""
        self._note(node)
        kind = node.shape.element_type
        if len(node.shape.dimensions) != 1:
            node = self._node("bitcast", row_major(kind, (node.shape.elements,)), (node,))
        if node.shape.elements != units:
            node = self._node("slice", row_major(kind, (units,)), (node,))
            node.proto.slice_dimensions.add(start=first, limit=first + units, stride=1)
        return node if kind == "f32" else self._node("convert", row_major("f32", (units,)), (node,))

    def _repeated(self, value: float, units: int) -> Node:
        constant = self._node("constant", row_major("f32", ()), ())
        literal = literal_of(constant.shape, np.float32(value).tobytes())
        assert literal is not None, "f32 has literals"
        constant.proto.literal.CopyFrom(literal)
        return self._node("broadcast", row_major("f32", (units,)), (constant,))

    def _concatenate(self, nodes: Sequence[Node], shape: Shape, dimension: int) -> Node:
        for node in nodes:
            self._note(node)
        joined = self._node("concatenate", shape, tuple(nodes))
        joined.proto.dimensions.append(dimension)
        return joined

    def _note(self, node: Node) -> None:
        """Note a value that is read, unless it is computed here."""
        if node.index < _FIRST:
            self.reads.append(node)

    def _node(self, opcode: str, shape: Shape, operands: tuple[Node, ...]) -> Node:
        proto = InstructionProto(opcode=opcode, name=f"recurrent_{opcode}")
        proto.shape.CopyFrom(shape.to_proto())
        node = Node(next(_indices), opcode, shape, operands, proto)
        assert self._origin.top_level_id is not None, "a loop is a top-level instruction"
        node.producers = [self._origin.top_level_id]
        return node


def _dimension(view: View, place: int) -> int | None:
    """The number of the dimension of the view's node that this one of the view is."""
    own = view.node.shape.strided_dimensions
    found = [number for number, dimension in enumerate(own) if dimension == view.dimensions[place]]
    return found[0] if len(found) == 1 else None
