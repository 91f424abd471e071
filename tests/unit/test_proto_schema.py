"""Proto schema: declared and unknown fields survive a round trip."""

from __future__ import annotations

from jaxlib import _hlo

from hlo_dispatch.ir import schema
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module

# Undeclared: sharding, fft_type, is_stable, lower, the module's own attributes …
TEXT = """
HloModule fields, input_output_alias={ {0}: (0, {}, may-alias) }, frontend_attributes={a="b"}
less {
  left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT lt = pred[] compare(left, right), direction=LT
}
ENTRY main {
  a = f32[4,4]{0,1} parameter(0), sharding={replicated}, metadata={op_name="x" source_file="a.py" source_line=3}
  b = f32[4]{0} parameter(1)
  c = c64[4]{0} parameter(2)
  weights = bf16[3,2]{1,0:T(8,128)(2,1)} constant({{1,2},{3,inf},{nan,-0}})
  fft = c64[4]{0} fft(c), fft_type=IFFT, fft_length={4}
  sorted = f32[4]{0} sort(b), dimensions={0}, is_stable=true, to_apply=less
  cholesky = f32[4,4]{0,1} cholesky(a), lower=true
  slice = f32[2]{0} slice(b), slice={[1:4:2]}
  zero = f32[] constant(0)
  pad = f32[4]{0} pad(slice, zero), padding=1_1_0, control-predecessors={sorted}
  ROOT results = (f32[4,4]{0,1}, f32[4]{0}, c64[4]{0}) tuple(cholesky, pad, fft)
}
"""


def test_no_byte_is_lost() -> None:
    original = hlo_text.from_text(TEXT)
    returned = Module.from_bytes(original).to_bytes()
    module = schema.ModuleProto.DESCRIPTOR
    assert in_order(returned, module) == in_order(original, module)


def test_xla_reads_the_same_module() -> None:
    original = hlo_text.from_text(TEXT)
    returned = Module.from_bytes(original).to_bytes()
    assert read_by_xla(returned) == read_by_xla(original)
    assert hlo_text.to_text(returned) == hlo_text.to_text(original)


def test_a_second_trip_changes_nothing() -> None:
    once = Module.from_bytes(hlo_text.from_text(TEXT)).to_bytes()
    assert Module.from_bytes(once).to_bytes() == once


def test_something_was_unknown() -> None:
    """The tests above are about undeclared fields: this module has some, at several depths."""
    module = Module.from_bytes(hlo_text.from_text(TEXT)).proto
    cholesky = next(proto for proto in module.computations[-1].instructions if proto.opcode == "cholesky")
    sizes = module.ByteSize(), cholesky.ByteSize()
    module.DiscardUnknownFields()
    assert module.ByteSize() < sizes[0]
    assert cholesky.ByteSize() < sizes[1]


def read_by_xla(serialized: bytes) -> list[tuple[int, object]]:
    """What XLA writes after reading; it numbers every module it reads."""
    returned = _hlo.HloModule.from_serialized_hlo_module_proto(serialized).as_serialized_hlo_module_proto()
    module = schema.ModuleProto.DESCRIPTOR
    number = module.fields_by_name["id"].number
    return [field for field in in_order(returned, module) if field[0] != number]


def in_order(data: bytes, message) -> list[tuple[int, object]]:
    """The wire fields of a message by number, those of one number in their own order, known messages opened."""
    fields = []
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, place = varint(data, place)
        elif kind == 2:
            size, place = varint(data, place)
            value, place = data[place : place + size], place + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, place = data[place : place + size], place + size
        field = message.fields_by_number.get(number)
        if field is not None and field.message_type is not None:
            value = in_order(value, field.message_type)
        fields.append((number, value))
    return sorted(fields, key=lambda field: field[0])


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
