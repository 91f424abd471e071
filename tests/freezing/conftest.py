"""A partition that preprocesses everything: the prologue copies each frozen array, and the program reads the copies."""

from __future__ import annotations

import pytest

from hlo_dispatch.driver.frozen_build import FrozenModule
from hlo_dispatch.freezing import stock_fallback
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.split_module import PreprocessedValue, Split


def copying(found: FrozenModule, pipeline: object = None) -> Split:
    """Stands for `driver.frozen_build.build` where frozen parameters are a module's first."""
    module, frozen = found.module, found.frozen
    signature = module.entry.program_shape
    count = len(signature.parameters)
    assert sorted(frozen) == list(range(len(frozen)))
    shapes = [shape_of(shape) for shape in signature.parameters[: len(frozen)]]
    return Split(
        _copies(module.copy(), len(frozen)),
        tuple(range(len(frozen))),
        tuple(
            PreprocessedValue(shape, f"copy.{number}", is_prepacked=number == 0) for number, shape in enumerate(shapes)
        ),
        module,
        (),
        tuple(range(len(frozen), count)),
    )


def _copies(module: Module, count: int) -> Module:
    entry = module.entry
    parameters = sorted(
        (i for i in entry.instructions[:] if i.opcode == "parameter" and i.parameter_number < count),
        key=lambda instruction: instruction.parameter_number,
    )
    number = max(i.id for i in entry.instructions[:])
    copies = []
    for parameter in parameters:
        number += 1
        copies.append(InstructionProto(name=f"copy.of.{number}", opcode="copy", id=number))
        copies[-1].shape.CopyFrom(parameter.shape)
        copies[-1].operand_ids.append(parameter.id)
    root = InstructionProto(name="copies", opcode="tuple", id=number + 1)
    root.operand_ids.extend(copy.id for copy in copies)
    root.shape.element_type = 13
    root.shape.tuple_shapes.extend(copy.shape for copy in copies)
    del entry.instructions[:]
    entry.instructions.extend([*parameters, *copies, root])
    entry.root_id = root.id
    for shape in (entry.program_shape, module.proto.host_program_shape):
        kept = list(shape.parameters[:count])
        del shape.parameters[:], shape.parameter_names[:]
        shape.parameters.extend(kept)
        shape.parameter_names.extend(f"p{n}" for n in range(count))
        shape.result.CopyFrom(root.shape)
    del module.proto.computations[:]
    module.proto.computations.append(entry)
    return Module(module.proto)


@pytest.fixture
def everything_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_fallback, "build", copying)


@pytest.fixture(autouse=True)
def _quickly(request: pytest.FixtureRequest) -> None:
    """What is frozen has weights of a few rows; its results are what counts, but where times are compared."""
    if request.node.get_closest_marker("timing") is None:
        request.getfixturevalue("_compiled_quickly")
