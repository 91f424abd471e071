"""Shapes with layouts: element type, dimensions, and the strides of the dimensions in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from hlo_dispatch.ir import schema

HALF_TYPES = frozenset(("bf16", "f16"))
FLOAT_TYPES = HALF_TYPES | {"f32"}
"""The float types that kernels compute with besides f64."""


@dataclass(frozen=True)
class Shape:
    """An array shape (or a tuple's, then `element_type` is "tuple" and `dimensions` is empty)."""

    element_type: str
    """HLO text name of the element type: "f32", "bf16", "pred", "tuple" …"""
    dimensions: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    """Dimension numbers from the fastest varying to the slowest."""
    is_dynamic: bool = False
    packed_bits: int = 0
    """Bits of an element where several share a byte; 0: no packing."""

    @cached_property
    def elements(self) -> int:
        return math.prod(self.dimensions)

    @cached_property
    def bytes(self) -> int:
        """Size in bytes; 0 for what is not an array."""
        if self.packed_bits:
            return -(-self.elements * self.packed_bits // 8)
        return self.elements * schema.BYTES_PER_ELEMENT.get(self.element_type, 0)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each dimension."""
        strides = [0] * len(self.dimensions)
        distance = 1
        for dimension in self.minor_to_major:
            strides[dimension] = distance
            distance *= self.dimensions[dimension]
        return tuple(strides)

    @cached_property
    def strided_dimensions(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of each dimension."""
        return tuple(zip(self.dimensions, self.strides, strict=True))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.element_type, self.dimensions, self.minor_to_major, self.is_dynamic, self.packed_bits))

    @property
    def is_array(self) -> bool:
        return self.element_type in schema.BYTES_PER_ELEMENT

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        dimensions = ",".join(map(str, self.dimensions))
        bits = f":E({self.packed_bits})" if self.packed_bits else ""
        layout = "{" + ",".join(map(str, self.minor_to_major)) + bits + "}" if self.dimensions else ""
        return f"{self.element_type}[{dimensions}]{layout}"

    def to_proto(self) -> schema.ShapeProto:
        """The ShapeProto with a plain (untiled) layout. Shared: copy it, never change it."""
        return self._proto

    @cached_property
    def _proto(self) -> schema.ShapeProto:
        proto = schema.ShapeProto(element_type=schema.ELEMENT_TYPE_NUMBERS[self.element_type])
        proto.dimensions.extend(self.dimensions)
        proto.is_dynamic_dimension.extend([False] * len(self.dimensions))
        proto.layout.minor_to_major.extend(self.minor_to_major)
        proto.layout.element_size_in_bits = self.packed_bits
        proto.layout.tail_padding_alignment_in_elements = 1  # XLA's default; 0 would be a tiled layout
        return proto


_cache: dict[bytes, Shape] = {}


def shape_of(proto: schema.ShapeProto) -> Shape:
    """The Shape of a ShapeProto. A module has few distinct shapes and thousands of instructions: cached."""
    return shape_of_serialized(proto.SerializeToString())


def shape_of_serialized(serialized: bytes) -> Shape:
    """The Shape of a serialized ShapeProto."""
    shape = _cache.get(serialized)
    if shape is None:
        if len(_cache) > 100_000:
            _cache.clear()
        proto = schema.ShapeProto.FromString(serialized)
        shape = _cache[serialized] = Shape(
            schema.ELEMENT_TYPES.get(proto.element_type, f"type{proto.element_type}"),
            tuple(proto.dimensions),
            tuple(proto.layout.minor_to_major),
            any(proto.is_dynamic_dimension),
            proto.layout.element_size_in_bits,
        )
    return shape


@lru_cache(maxsize=4096)
def row_major(element_type: str, dimensions: tuple[int, ...]) -> Shape:
    """A shape whose last dimension varies fastest."""
    return Shape(element_type, dimensions, tuple(reversed(range(len(dimensions)))))


def tuple_shape(shapes: Iterable[schema.ShapeProto]) -> schema.ShapeProto:
    """The ShapeProto of a tuple."""
    return schema.ShapeProto(element_type=schema.ELEMENT_TYPE_NUMBERS["tuple"], tuple_shapes=shapes)


@lru_cache(maxsize=4096)
def in_memory_order(shape: Shape) -> Shape:
    """The row-major shape of the same bytes."""
    dimensions = tuple(shape.dimensions[d] for d in reversed(shape.minor_to_major))
    return replace(row_major(shape.element_type, dimensions), packed_bits=shape.packed_bits)
