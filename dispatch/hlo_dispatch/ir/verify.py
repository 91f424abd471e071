"""Verifier of rewritten modules: the rules that XLA's import enforces by aborting, reported as errors."""

from __future__ import annotations

from collections.abc import Collection

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import CALLS_NOTHING
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.verify_donation import verify_donation


def verify(module: Module, computations: Collection[int] | None = None) -> None:
    """Check a module's structure, and its statements on the entry's parameters.

    Args:
        computations: ids of the computations to check instruction by instruction; None checks all.

    Raises:
        ModuleError: names the computation, the instruction and the rule it breaks.
    """
    seen: set[int] = set()
    fused_by: dict[int, str] = {}
    for computation in module.proto.computations[:]:
        if computations is None or computation.id in computations:
            _verify_computation(module, computation, seen, fused_by)
        seen.add(computation.id)
    if module.proto.entry_computation_id not in seen:
        raise ModuleError("the module has no entry computation")
    verify_donation(module)


def _verify_computation(
    module: Module, computation: ComputationProto, seen: set[int], fused_by: dict[int, str]
) -> None:
    by_id: dict[int, InstructionProto] = {}
    known: set[int] = set()
    names: set[str] = set()
    parameters: list[int] = []
    for instruction in computation.instructions[:]:
        identifier, name, opcode = instruction.id, instruction.name, instruction.opcode
        if identifier in known:
            raise ModuleError(f"{_where(instruction, computation)}: its id {identifier} is taken")
        if not name or name in names:
            raise ModuleError(f"{_where(instruction, computation)}: the name is empty or taken")
        if not known.issuperset(instruction.operand_ids[:]):
            where, missing = _where(instruction, computation), min(set(instruction.operand_ids[:]) - known)
            raise ModuleError(f"{where}: operand {missing} is not defined before it")
        if opcode == "parameter":
            parameters.append(instruction.parameter_number)
        elif opcode not in CALLS_NOTHING:
            _verify_calls(module, instruction, by_id, seen, computation)
            if opcode == "fusion":
                _verify_fused_once(instruction, fused_by)
        by_id[identifier] = instruction
        known.add(identifier)
        names.add(name)
    if computation.root_id not in known:
        raise ModuleError(f"{computation.name}: root {computation.root_id} is not one of its instructions")
    if sorted(parameters) != list(range(len(parameters))):
        raise ModuleError(f"{computation.name}: parameters are numbered {sorted(parameters)}")


def _verify_calls(
    module: Module,
    instruction: InstructionProto,
    by_id: dict[int, InstructionProto],
    seen: set[int],
    computation: ComputationProto,
) -> None:
    if missing := set(instruction.called_computation_ids[:]) - seen:
        where = _where(instruction, computation)
        raise ModuleError(f"{where}: calls computation {min(missing)}, which is not defined before it")
    if instruction.opcode == "fusion":
        _verify_fusion(module, instruction, by_id, computation)


def _verify_fused_once(fusion: InstructionProto, fused_by: dict[int, str]) -> None:
    for called in fusion.called_computation_ids[:]:
        if called in fused_by:
            raise ModuleError(f"%{fusion.name} and %{fused_by[called]} are fusions of one computation")
        fused_by[called] = fusion.name


def _where(instruction: InstructionProto, computation: ComputationProto) -> str:
    return f"%{instruction.name} in {computation.name}"


def _verify_fusion(
    module: Module, fusion: InstructionProto, by_id: dict[int, InstructionProto], computation: ComputationProto
) -> None:
    called = module.computations[fusion.called_computation_ids[0]]
    parameters: dict[int, ShapeProto] = {}
    root: InstructionProto | None = None
    for instruction in called.instructions[:]:
        if instruction.opcode == "parameter":
            parameters[instruction.parameter_number] = instruction.shape
        if instruction.id == called.root_id:
            root = instruction
    if len(parameters) != len(fusion.operand_ids):
        where = _where(fusion, computation)
        raise ModuleError(f"{where}: {len(fusion.operand_ids)} operands for {len(parameters)} parameters")
    for number, operand in enumerate(fusion.operand_ids[:]):
        got, expected = by_id[operand].shape, parameters[number]
        if not _is_same(got, expected):
            where, sentence = _where(fusion, computation), f"{shape_of(got)}, the fused parameter {shape_of(expected)}"
            raise ModuleError(f"{where}: operand {number} is {sentence}")
    if root is None:
        raise ModuleError(f"{_where(fusion, computation)}: its computation has no root")
    if not _is_same(root.shape, fusion.shape):
        where, got, expected = _where(fusion, computation), shape_of(fusion.shape), shape_of(root.shape)
        raise ModuleError(f"{where}: is {got}, its computation gives {expected}")


def _is_same(one: ShapeProto, other: ShapeProto) -> bool:
    """Whether two ShapeProtos are the same to us; equal messages, the usual case, are so without a look."""
    return one == other or shape_of(one) == shape_of(other)
