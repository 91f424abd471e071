"""Constant weights: preprocesses a module's large constants while the module is compiled.

The constants are extracted into frozen parameters, which the pipeline, the tuner and the splitter then see. The
prologue runs at once, and its results become constants again, with the weights that the program reads unprocessed.
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
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import renumber_parameters
from hlo_dispatch.ir.literals import literal_of, memory_of
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import FLOAT_TYPES, Shape, in_memory_order, shape_of
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.pattern import Table
from hlo_dispatch.vendor import registration, users_kernels

MIN_WEIGHTS_BYTES = 64 * 1024
"""Bytes. Smaller constants fit into a core's own cache, and a reorder in each call takes a few microseconds."""


@dataclass(frozen=True)
class ConstantWeights:
    """A module's large constants, and the module with parameters in their place, after its own."""

    module: bytes
    """The serialized module with parameters in place of the constants."""
    parameters: int
    """Number of the parameters of the original module."""
    shapes: Sequence[Shape]
    """Row-major shapes of the constants."""
    memory: Sequence[memoryview]
    """Elements of the constants."""

    @property
    def frozen(self) -> frozenset[int]:
        """Numbers of the parameters in place of the constants."""
        return frozenset(range(self.parameters, self.parameters + len(self.shapes)))

    def with_original_constants(self, dispatched: bytes) -> bytes:
        """The dispatched module with its original constants.

        Raises:
            ModuleError: the verifier rejects the module.
        """
        return self._with_constants(dispatched, dict(zip(sorted(self.frozen), self.memory, strict=True)), 0)

    def with_preprocessed_constants(self, dispatched: bytes, split: Splitter, table: Table) -> bytes:
        """The dispatched module with preprocessed constants.

        Args:
            split: prepacks weights and splits a module.
            table: the table of its kernels.

        Raises:
            Exception: what compiling and running raises.
        """
        found = split(dispatched, self.frozen)
        memory: list[Any] = []
        if found.prologue is not None:
            executable.start()
            registration.register(users_kernels.open_handlers(table))
            inputs = executable.to_device([self._array(number) for number in found.prologue_inputs])
            memory = [_bytes(array) for array in executable.Executable(Module.from_bytes(found.prologue))(inputs)]
        memory += [self.memory[number - self.parameters] for number in found.frozen_inputs]
        return self._with_constants(found.program, dict(enumerate(memory)), len(memory))

    def _with_constants(self, serialized: bytes, memory: Mapping[int, Any], leading: int) -> bytes:
        """A module with constants in place of some parameters; the others get their original numbers.

        Args:
            memory: number of a parameter → elements of its constant.
            leading: how many of these parameters come before the others.
        """
        module = Module.from_bytes(serialized)
        for instruction in module.entry.instructions:
            if instruction.opcode == "parameter" and instruction.parameter_number in memory:
                _become_constant(instruction, memory[instruction.parameter_number])
        renumber_parameters(module, range(leading, leading + self.parameters))
        verify(module)
        return module.to_bytes()

    def _array(self, number: int) -> Any:
        index = number - self.parameters
        shape = self.shapes[index]
        return np.frombuffer(self.memory[index], dtype_of(shape)).reshape(shape.dimensions)


def has_constant_weights(module: Module) -> bool:
    """Whether the module has constants of at least `MIN_WEIGHTS_BYTES`."""
    return any(_is_constant_weights(instruction) for instruction in module.entry.instructions[:])


def extract_constant_weights(module: Module) -> ConstantWeights | None:
    """Extract the large constants of a module, which changes; None where there are none."""
    editor = Editor(module, module.entry)
    count = len(module.entry.program_shape.parameters)
    shapes: list[Shape] = []
    memory: list[memoryview] = []
    for instruction in module.entry.instructions[:]:
        elements = memory_of(instruction.literal) if _is_constant_weights(instruction) else None
        shape = shape_of(instruction.shape)
        if elements is None or shape_of(instruction.literal.shape).minor_to_major != shape.minor_to_major:
            continue
        row_major_shape = in_memory_order(shape)
        builder, number = editor.after(instruction.id), count + len(shapes)
        weights = builder.parameter(number, row_major_shape, f"{instruction.name}.weights")
        if row_major_shape != shape:
            weights = builder.make("bitcast", shape, weights.id, stem=instruction.name)
        editor.replace_all_uses_with(instruction.id, weights.id)
        editor.redirect_control_dependencies({instruction.id: weights.id})
        editor.erase(instruction.id)
        shapes.append(row_major_shape)
        memory.append(elements)
    if not shapes:
        return None
    commit(module, [editor])
    renumber_parameters(module, range(count + len(shapes)))
    return ConstantWeights(module.to_bytes(), count, shapes, memory)


def _is_constant_weights(instruction: InstructionProto) -> bool:
    if instruction.opcode != "constant":
        return False
    shape = shape_of(instruction.shape)
    return shape.element_type in FLOAT_TYPES and shape.bytes >= MIN_WEIGHTS_BYTES


def _become_constant(parameter: InstructionProto, memory: Any) -> None:
    literal = literal_of(shape_of(parameter.shape), memory)
    if literal is None:
        raise ModuleError(f"{parameter.name} cannot be a constant: its elements are of an unusual type")
    parameter.ClearField("parameter_number")
    parameter.opcode = "constant"
    parameter.literal.CopyFrom(literal)


def _bytes(array: Any) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
