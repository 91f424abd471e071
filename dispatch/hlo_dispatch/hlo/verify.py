"""A verifier for what we build: the rules XLA's own import enforces by aborting, checked with a sentence."""

from __future__ import annotations

from collections.abc import Collection

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.shape import shape_of


def verify(module: Module, computations: Collection[int] | None = None) -> None:
    """Check a module's structure.

    Args:
        computations: ids of the computations to check instruction by instruction; None checks all.

    Raises:
        ModuleError: names the computation, the instruction and the rule it breaks.
    """
    seen: set[int] = set()
    fused_by: dict[int, str] = {}
    for computation in module.proto.computations:
        if computations is None or computation.id in computations:
            _verify_computation(module, computation, seen)
        for instruction in computation.instructions:
            if instruction.opcode == "fusion":
                for called in instruction.called_computation_ids:
                    if called in fused_by:
                        raise ModuleError(
                            f"%{instruction.name} and %{fused_by[called]} are fusions of one computation"
                        )
                    fused_by[called] = instruction.name
        seen.add(computation.id)
    if module.proto.entry_computation_id not in seen:
        raise ModuleError("the module has no entry computation")


def _verify_computation(module: Module, computation, seen: Collection[int]) -> None:
    by_id: dict[int, object] = {}
    names: set[str] = set()
    parameters: list[int] = []
    for instruction in computation.instructions:
        where = f"%{instruction.name} in {computation.name}"
        if instruction.id in by_id:
            raise ModuleError(f"{where}: its id {instruction.id} is taken")
        if not instruction.name or instruction.name in names:
            raise ModuleError(f"{where}: the name is empty or taken")
        _verify_references(instruction, by_id, seen, where)
        if instruction.opcode == "parameter":
            parameters.append(instruction.parameter_number)
        elif instruction.opcode == "fusion":
            _verify_fusion(module, instruction, by_id, where)
        by_id[instruction.id] = instruction
        names.add(instruction.name)
    if computation.root_id not in by_id:
        raise ModuleError(f"{computation.name}: root {computation.root_id} is not one of its instructions")
    if sorted(parameters) != list(range(len(parameters))):
        raise ModuleError(f"{computation.name}: parameters are numbered {sorted(parameters)}")


def _verify_references(instruction, by_id: dict, seen: Collection[int], where: str) -> None:
    for operand in instruction.operand_ids:
        if operand not in by_id:
            raise ModuleError(f"{where}: operand {operand} is not defined before it")
    for called in instruction.called_computation_ids:
        if called not in seen:
            raise ModuleError(f"{where}: calls computation {called}, which is not defined before it")


def _verify_fusion(module: Module, fusion, by_id: dict, where: str) -> None:
    called = module.computations[fusion.called_computation_ids[0]]
    parameters = {i.parameter_number: i for i in called.instructions if i.opcode == "parameter"}
    if len(parameters) != len(fusion.operand_ids):
        raise ModuleError(f"{where}: {len(fusion.operand_ids)} operands for {len(parameters)} parameters")
    for number, operand in enumerate(fusion.operand_ids):
        got, wanted = shape_of(by_id[operand].shape), shape_of(parameters[number].shape)
        if got != wanted:
            raise ModuleError(f"{where}: operand {number} is {got}, the fused parameter {wanted}")
    root = next(i for i in called.instructions if i.id == called.root_id)
    if shape_of(root.shape) != shape_of(fusion.shape):
        raise ModuleError(f"{where}: is {shape_of(fusion.shape)}, its computation gives {shape_of(root.shape)}")
