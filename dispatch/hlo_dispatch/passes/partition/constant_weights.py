"""Weights that are constants of a module: what depends on nothing else is computed while the module is rewritten.

They are taken out, and are frozen parameters to everything that follows: to the pass, to measuring, to the cut. What is
prepared of them is computed at once, and put in as constants again, with those that the program reads as they are.
"""

# pyright: basic
# jax arrays have no complete type hints.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.run.inputs import dtype_of
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.literals import literal_of, memory_of
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, in_memory_order, shape_of
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.pattern import Table
from hlo_dispatch.vendor import registration, users_kernels

SMALLEST_WEIGHTS = 64 * 1024
"""Bytes. Less lies in a processor's own cache, and copying it in each call takes a few microseconds."""
_FLOATING = frozenset(("bf16", "f16", "f32"))


@dataclass(frozen=True)
class Weights:
    """A module's large constants, and the module with parameters in their place, behind its own."""

    module: bytes
    """Serialized."""
    parameters: int
    """How many it had with its constants."""
    shapes: Sequence[Shape]
    """Of the constants, row-major."""
    memory: Sequence[memoryview]
    """What they hold."""

    @property
    def frozen(self) -> frozenset[int]:
        """Numbers of their parameters."""
        return frozenset(range(self.parameters, self.parameters + len(self.shapes)))

    def put_back(self, dispatched: bytes) -> bytes:
        """The dispatched module with its constants as they were.

        Raises:
            ModuleError: the module is not sound then.
        """
        return self._with_constants(dispatched, dict(zip(sorted(self.frozen), self.memory, strict=True)), 0)

    def prepared(self, dispatched: bytes, split: Splitter, table: Table) -> bytes:
        """The dispatched module with what depends on them alone computed.

        Args:
            split: packs weights and cuts a module.
            table: whose kernels it calls.

        Raises:
            Exception: what compiling and running raises.
        """
        halves = split(dispatched, self.frozen)
        memory: list[Any] = []
        if halves.preparation is not None:
            executable.start()
            registration.register(users_kernels.open_handlers(table))
            given = executable.to_device([self._array(number) for number in halves.read])
            memory = [_bytes(array) for array in executable.Executable(halves.preparation)(given)]
        memory += [self.memory[number - self.parameters] for number in halves.kept]
        return self._with_constants(halves.program, dict(enumerate(memory)), len(memory))

    def _with_constants(self, serialized: bytes, memory: Mapping[int, Any], leading: int) -> bytes:
        """A module with some of its parameters as constants, and the others numbered as they were.

        Args:
            memory: of those parameters, by number.
            leading: how many of them come before the others.
        """
        module = Module.from_bytes(serialized)
        for instruction in module.entry.instructions:
            if instruction.opcode == "parameter" and instruction.parameter_number in memory:
                _become_constant(instruction, memory[instruction.parameter_number])
        renumber_parameters(module, range(leading, leading + self.parameters))
        verify(module)
        return module.to_bytes()

    def _array(self, number: int) -> Any:
        place = number - self.parameters
        shape = self.shapes[place]
        return np.frombuffer(self.memory[place], dtype_of(shape)).reshape(shape.dimensions)


def has_weights(module: Module) -> bool:
    """Whether some of its constants are as large as weights are."""
    return any(_is_weights(instruction) for instruction in module.entry.instructions[:])


def weights_of(module: Module) -> Weights | None:
    """Take the large constants out of a module, which is another one then; None where there are none."""
    entry, fresh = module.entry, max(instruction.id for instruction in module.entry.instructions)
    count = len(entry.program_shape.parameters)
    shapes: list[Shape] = []
    memory: list[memoryview] = []
    instructions: list[InstructionProto] = []
    for instruction in entry.instructions[:]:
        held = memory_of(instruction.literal) if _is_weights(instruction) else None
        own = shape_of(instruction.shape)
        if held is None or shape_of(instruction.literal.shape).minor_to_major != own.minor_to_major:
            instructions.append(instruction)
            continue
        plain = in_memory_order(own)
        fresh += 1
        name = module.fresh_name(f"{instruction.name}.weights")
        parameter = InstructionProto(opcode="parameter", id=fresh, name=name, parameter_number=count + len(shapes))
        parameter.shape.CopyFrom(plain.to_proto())
        renamed = InstructionProto(opcode="bitcast", id=instruction.id, name=instruction.name)
        renamed.shape.CopyFrom(instruction.shape)
        renamed.operand_ids.append(fresh)
        if plain == own:
            parameter.id, parameter.name = renamed.id, renamed.name
        instructions += [parameter] if plain == own else [parameter, renamed]
        shapes.append(plain)
        memory.append(held)
    if not shapes:
        return None
    kept = [copy_of(instruction) for instruction in instructions]
    del entry.instructions[:]
    entry.instructions.extend(kept)
    renumber_parameters(module, range(count + len(shapes)))
    return Weights(module.to_bytes(), count, shapes, memory)


def _is_weights(instruction: InstructionProto) -> bool:
    if instruction.opcode != "constant":
        return False
    shape = shape_of(instruction.shape)
    return shape.element_type in _FLOATING and shape.bytes >= SMALLEST_WEIGHTS


def _become_constant(parameter: InstructionProto, memory: Any) -> None:
    literal = literal_of(shape_of(parameter.shape), memory)
    if literal is None:
        raise ModuleError(f"{parameter.name} cannot be a constant: its elements are of an unusual type")
    parameter.ClearField("parameter_number")
    parameter.opcode = "constant"
    parameter.literal.CopyFrom(literal)


def _bytes(array: Any) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
