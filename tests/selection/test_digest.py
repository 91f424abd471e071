"""Digests of instructions and computations: native code reads what the keys of stored measurements are made of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hlo_dispatch.autotune.extract.digest import LARGEST_CONSTANT, Digests
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import PLAIN
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.text import parsed

GOLDEN = Path(__file__).parents[1] / "golden"
MODULES = sorted(GOLDEN.glob("*/*.before.hlo"))[::7]
PLACE = ("name", "id", "operand_ids", "metadata", "control_predecessor_ids", "called_computation_ids")


def of_instruction(module: Module, instruction: InstructionProto) -> bytes:
    is_large = instruction.opcode == "constant" and shape_of(instruction.shape).bytes > LARGEST_CONSTANT
    if instruction.opcode in PLAIN or is_large:
        return instruction.opcode.encode() + instruction.shape.SerializeToString()
    copy = InstructionProto()
    copy.CopyFrom(instruction)
    for field in PLACE:
        copy.ClearField(field)
    called = [of_computation(module, number) for number in instruction.called_computation_ids]
    return copy.SerializeToString(deterministic=True) + b"".join(called)


def of_computation(module: Module, identifier: int) -> bytes:
    computation = module.computations[identifier]
    position = {instruction.id: number for number, instruction in enumerate(computation.instructions)}
    hasher = hashlib.sha256()
    for instruction in computation.instructions:
        hasher.update(of_instruction(module, instruction))
        hasher.update(str([position[operand] for operand in instruction.operand_ids]).encode())
    hasher.update(b"root %d" % position[computation.root_id])
    return hasher.digest()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_digests_of_a_module(path: Path) -> None:
    module = parsed(path.read_text())
    digests = Digests(module)
    for computation in module.proto.computations:
        assert digests.of_computation(computation.id) == of_computation(module, computation.id)
        for instruction in computation.instructions:
            assert digests.of_instruction(instruction) == of_instruction(module, instruction)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_index_of_a_computation(path: Path) -> None:
    module = parsed(path.read_text())
    digests = Digests(module)
    for computation in module.proto.computations:
        inputs, operands, users = digests.index(computation)
        assert list(inputs) == list(operands) == [instruction.id for instruction in computation.instructions]
        for instruction in computation.instructions:
            number = instruction.id
            assert inputs[number] == digests.of_instruction(instruction)
            assert operands[number] == tuple(instruction.operand_ids)
            assert list(users.get(number, ())) == [i.id for i in computation.instructions if number in i.operand_ids]


CONSTANTS = """
HloModule m
ENTRY main {{
  p = f32[{size}]{{0}} parameter(0)
  c = f32[{size}]{{0}} constant({{{values}}})
  l = pred[{size}]{{0}} compare(p, c), direction=LT
  i = s32[] constant({index}), metadata={{op_name="{name}"}}
  ROOT t = (pred[{size}]{{0}}, s32[]) tuple(l, i)
}}"""


@pytest.mark.parametrize(("size", "is_read"), [(16, True), (LARGEST_CONSTANT // 4, True), (LARGEST_CONSTANT, False)])
def test_elements_of_small_constants_count(size: int, is_read: bool) -> None:
    def digest(first: int, index: int = -3, name: str = "a") -> bytes:
        values = ", ".join(map(str, [first, *range(1, size)]))
        module = parsed(CONSTANTS.format(size=size, values=values, index=index, name=name))
        found = Digests(module).of_computation(module.entry.id)
        assert found == of_computation(module, module.entry.id)
        return found

    assert (digest(0) != digest(7)) is is_read
    assert digest(0) != digest(0, index=-4)
    assert digest(0) == digest(0, name="another")


def test_what_is_no_message_is_refused() -> None:
    from hlo_dispatch import _kernels

    with pytest.raises(RuntimeError, match="message"):
        _kernels.instruction_digest_input(b"\x0a\x7fshort", {}, PLAIN, lambda _: False)
