"""Entry parameters: renumbering updates all references to them."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import remove_donation, renumber_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import row_major, shape_of
from hlo_dispatch.ir.verify import verify
from matching import instruction

TEXT = """
HloModule donated, input_output_alias={ {0}: (1, {}, may-alias), {1}: (3, {1}, must-alias) }, buffer_donor={ (2, {}) }
ENTRY main { a = f32[1]{0} parameter(0)
  b = f32[2]{0} parameter(1)
  c = f32[3]{0} parameter(2)
  d = (f32[5]{0}, f32[4]{0}) parameter(3)
  e = f32[4]{0} get-tuple-element(d), index=1
  f = f32[2]{0} negate(b)
  g = f32[4]{0} negate(e)
  ROOT results = (f32[2]{0}, f32[4]{0}) tuple(f, g) }
"""


def donated() -> Module:
    module = Module.from_bytes(hlo_text.from_text(TEXT))
    module.proto.cross_program_prefetches.add(parameter=0, offset=3)
    module.proto.cross_program_prefetches.add(parameter=2)
    module.proto.spmd_parameters_shardings.extend((b"\x08\x01", b"\x08\x02", b"\x08\x03", b"\x08\x04"))
    verify(module)
    return module


def referred(module: Module) -> dict[str, list]:
    """By name what the module says of its parameters by number."""
    names = {i.parameter_number: i.name for i in module.entry.instructions if i.opcode == "parameter"}
    return {
        "aliases": [
            (names[one.parameter_number], [*one.parameter_shape_index], [*one.output_shape_index])
            for one in module.proto.input_output_alias.entries
        ],
        "donors": [names[one.parameter_number] for one in module.proto.buffer_donor.entries],
        "prefetches": [(names[one.parameter], one.offset) for one in module.proto.cross_program_prefetches],
        "shardings": dict(zip((names[n] for n in sorted(names)), module.proto.spmd_parameters_shardings, strict=True)),
    }


def test_what_refers_to_a_parameter_follows_it() -> None:
    module = donated()
    before = referred(module)
    renumber_parameters(module, [2, 3, 0, 1])
    verify(module)
    assert referred(module) == before
    for signature in (module.entry.program_shape, module.proto.host_program_shape):
        assert [*signature.parameter_names] == ["c", "d", "a", "b"]
        assert [str(shape_of(shape)) for shape in signature.parameters[2:]] == ["f32[1]{0}", "f32[2]{0}"]


def test_a_parameter_that_is_gone_and_a_new_one() -> None:
    module = donated()
    before = referred(module)
    editor = Editor(module, module.entry)
    for identifier, proto in list(editor.instructions.items()):
        if proto.name in ("a", "c"):
            editor.erase(identifier)
    editor.first().parameter(4, row_major("u8", (7,)), "new")
    commit(module, [editor])
    renumber_parameters(module, [4, 1, 3])
    verify(module)
    assert referred(module) == {
        "aliases": before["aliases"],
        "donors": [],
        "prefetches": [],
        "shardings": {"new": b"", "b": b"\x08\x02", "d": b"\x08\x04"},
    }


def test_no_input_is_taken_over() -> None:
    module = donated()
    remove_donation(module)
    verify(module)
    assert (referred(module)["aliases"], referred(module)["donors"]) == ([], [])


def alias(module: Module, number: int = 0):
    return module.proto.input_output_alias.entries[number]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: setattr(alias(m), "parameter_number", 4), "parameter 4 is donated, and there is none"),
        (lambda m: setattr(alias(m), "parameter_number", 2), "main: parameter 2 is donated twice"),
        (lambda m: alias(m, 1).parameter_shape_index.append(0), "parameter 3[1][0] is donated, and there is none"),
        (lambda m: alias(m, 1).parameter_shape_index.pop(), "parameter 3 is donated, and is no array but tuple"),
        (lambda m: alias(m).output_shape_index.append(0), "the result[0][0] is donated, and there is none"),
        (lambda m: alias(m).output_shape_index.__setitem__(0, 1), "main: the result[1] is donated twice"),
        (
            lambda m: setattr(alias(m), "parameter_number", 0),
            "main: parameter 0 (f32[1]{0}) cannot become the result[0] (f32[2]{0}), which is of another size",
        ),
        (
            lambda m: setattr(m.proto.buffer_donor.entries[0], "parameter_number", 7),
            "parameter 7 is donated, and there is none",
        ),
        (
            lambda m: m.proto.host_program_shape.parameters.pop(),
            "main: its signature has 3 parameters, and it has 4",
        ),
    ],
)
def test_what_refers_to_the_wrong_parameter_is_refused(change, sentence: str) -> None:
    module = donated()
    change(module)
    with pytest.raises(ModuleError) as caught:
        verify(module, ())
    assert str(caught.value) == sentence


def test_as_many_bytes_are_enough() -> None:
    """XLA itself gives a donated f32[2] to a result of the same size."""
    module = donated()
    instruction(module, "b").shape.CopyFrom(row_major("bf16", (4, 1)).to_proto())
    verify(module, ())
