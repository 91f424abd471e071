"""Verifier: one invalid module for every rule, with its message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.ir.verify import verify
from matching import instruction, parsed

# p ── negate ──┐         x, y ── fusion ── tanh ── root
# q ────────────┴ add
TEXT = """
fused { p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  negate = f32[4]{0} negate(p)
  ROOT add = f32[4]{0} add(negate, q) }
ENTRY main { x = f32[4]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  fusion = f32[4]{0} fusion(x, y), kind=kLoop, calls=fused
  ROOT tanh = f32[4]{0} tanh(fusion) }
"""


def broken(change: Callable[[Module], None]) -> Module:
    module = parsed(TEXT)
    verify(module)
    change(module)
    return module


def message(module: Module, **options) -> str:
    with pytest.raises(ModuleError) as caught:
        verify(module, **options)
    return str(caught.value)


def same_id(module: Module) -> None:
    instruction(module, "negate").id = instruction(module, "p").id


def same_name(module: Module) -> None:
    instruction(module, "negate").name = "p"


def no_name(module: Module) -> None:
    instruction(module, "negate").name = ""


def unknown_operand(module: Module) -> None:
    instruction(module, "negate").operand_ids[0] = 777


def later_operand(module: Module) -> None:
    instruction(module, "negate").operand_ids[0] = instruction(module, "add").id


def unknown_computation(module: Module) -> None:
    instruction(module, "fusion").called_computation_ids[0] = 777


def computations_turned_round(module: Module) -> None:
    protos = [type(proto).FromString(proto.SerializeToString()) for proto in module.proto.computations]
    del module.proto.computations[:]
    module.proto.computations.extend(reversed(protos))


def operand_missing(module: Module) -> None:
    del instruction(module, "fusion").operand_ids[1]


def operand_of_another_shape(module: Module) -> None:
    instruction(module, "q").shape.CopyFrom(row_major("f32", (4, 1)).to_proto())


def result_of_another_shape(module: Module) -> None:
    instruction(module, "add").shape.CopyFrom(row_major("bf16", (4,)).to_proto())


def root_elsewhere(module: Module) -> None:
    module.entry.root_id = instruction(module, "add").id


def parameters_not_counted(module: Module) -> None:
    instruction(module, "y").parameter_number = 2


def entry_elsewhere(module: Module) -> None:
    module.proto.entry_computation_id = 777


def shared_computation(module: Module) -> None:
    second = module.entry.instructions.add()
    second.CopyFrom(instruction(module, "fusion"))
    second.name, second.id = "fusion.2", 10**12


def identifier(name: str) -> int:
    return instruction(parsed(TEXT), name).id


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (same_id, lambda: f"%negate in fused: its id {identifier('p')} is taken"),
        (same_name, lambda: "%p in fused: the name is empty or taken"),
        (no_name, lambda: "% in fused: the name is empty or taken"),
        (unknown_operand, lambda: "%negate in fused: operand 777 is not defined before it"),
        (later_operand, lambda: f"%negate in fused: operand {identifier('add')} is not defined before it"),
        (unknown_computation, lambda: "%fusion in main: calls computation 777, which is not defined before it"),
        (operand_missing, lambda: "%fusion in main: 1 operands for 2 parameters"),
        (
            operand_of_another_shape,
            lambda: "%fusion in main: operand 1 is f32[4]{0}, the fused parameter f32[4,1]{1,0}",
        ),
        (result_of_another_shape, lambda: "%fusion in main: is f32[4]{0}, its computation gives bf16[4]{0}"),
        (root_elsewhere, lambda: f"main: root {identifier('add')} is not one of its instructions"),
        (parameters_not_counted, lambda: "main: parameters are numbered [0, 2]"),
        (entry_elsewhere, lambda: "the module has no entry computation"),
        (shared_computation, lambda: "%fusion.2 and %fusion are fusions of one computation"),
    ],
    ids=lambda value: value.__name__ if callable(value) and value.__name__ != "<lambda>" else "",
)
def test_rule(change: Callable[[Module], None], sentence: Callable[[], str]) -> None:
    assert message(broken(change)) == sentence()


def test_a_callee_stands_before_its_caller() -> None:
    module = broken(computations_turned_round)
    called = instruction(module, "fusion").called_computation_ids[0]
    assert message(module) == f"%fusion in main: calls computation {called}, which is not defined before it"


def test_only_the_computations_asked_for() -> None:
    """The pipeline verifies rewritten computations only; XLA's import has checked the rest."""
    module = parsed(TEXT)
    fused, main = module.proto.computations[0].id, module.entry.id
    verify(broken(parameters_not_counted), {fused})
    assert message(broken(same_name), computations={fused}) == "%p in fused: the name is empty or taken"
    assert "fusions of one computation" in message(broken(shared_computation), computations={main})


def test_a_fused_computation_without_its_root_is_refused_where_only_its_caller_is_checked() -> None:
    module = parsed(TEXT)
    module.proto.computations[0].root_id = 777
    assert message(module, computations={module.entry.id}) == "%fusion in main: its computation has no root"
