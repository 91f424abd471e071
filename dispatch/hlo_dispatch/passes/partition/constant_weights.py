"""Constant weights: preprocesses a module's large constants while the module is compiled.

The constants are extracted into frozen parameters, which the passes and the tuner then see. The
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
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.vendor import registration, users_kernels

MIN_WEIGHTS_BYTES = 64 * 1024
"""Bytes. Smaller constants fit into a core's own cache, and a reorder in each call takes a few microseconds."""


@dataclass(frozen=True)
class ConstantWeights:
    """The large constants of a module that has parameters in their place, after its own."""

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

    def array(self, number: int) -> Any:
        """The constant in place of which there is this parameter."""
        index = number - self.parameters
        shape = self.shapes[index]
        return np.frombuffer(self.memory[index], dtype_of(shape)).reshape(shape.dimensions)


def has_constant_weights(module: Module) -> bool:
    """Whether the module has constants of at least `MIN_WEIGHTS_BYTES`."""
    return any(_is_constant_weights(instruction) for instruction in module.entry.instructions[:])


def extract_constants(module: Module, context: PassContext) -> set[int]:
    """Replace the large constants by frozen parameters."""
    editor = Editor(module, module.entry)
    count = len(module.entry.program_shape.parameters)
    shapes: list[Shape] = []
    memory: list[memoryview] = []
    replaced: dict[int, int] = {}
    for instruction in module.entry.instructions[:]:
        elements = memory_of(instruction.literal) if _is_constant_weights(instruction) else None
        if elements is None:
            continue
        shape = shape_of(instruction.shape)
        row_major_shape = in_memory_order(shape)
        builder, number = editor.after(instruction.id), count + len(shapes)
        weights = builder.parameter(number, row_major_shape, f"{instruction.name}.weights")
        if row_major_shape != shape:
            weights = builder.make("bitcast", shape, weights.id, stem=instruction.name)
        editor.replace_all_uses_with(instruction.id, weights.id)
        replaced[instruction.id] = weights.id
        editor.erase(instruction.id)
        shapes.append(row_major_shape)
        memory.append(elements)
    editor.redirect_control_dependencies(replaced)
    context.weights = ConstantWeights(count, shapes, memory)
    context.frozen = context.weights.frozen
    changed = commit(module, [editor])
    renumber_parameters(module, range(count + len(shapes)))
    return changed


def preprocess_constants(module: Module, context: PassContext) -> set[int]:
    """Run the prologue: its results, and the weights that the program reads unprocessed, become constants.

    Raises:
        Exception: what compiling and running raises.
    """
    weights, split = context.weights, context.split
    assert weights is not None, "a pass before has made them"
    assert split is not None, "a pass before has made it"
    memory: list[Any] = []
    if split.prologue is not None:
        executable.start()
        registration.register(users_kernels.open_handlers(context.table))
        inputs = executable.to_device([weights.array(number) for number in split.prologue_inputs])
        memory = [_bytes(array) for array in executable.Executable(split.prologue)(inputs)]
    memory += [weights.memory[number - weights.parameters] for number in split.frozen_inputs]
    return _become_constants(module, weights, dict(enumerate(memory)), len(memory))


def restore_constants(module: Module, context: PassContext) -> set[int]:
    """Replace the frozen parameters by the original constants."""
    weights = context.weights
    assert weights is not None, "a pass before has made them"
    return _become_constants(module, weights, dict(zip(sorted(weights.frozen), weights.memory, strict=True)), 0)


def _become_constants(module: Module, weights: ConstantWeights, memory: Mapping[int, Any], leading: int) -> set[int]:
    """Put constants in place of some parameters; the others get their original numbers.

    Args:
        memory: number of a parameter → elements of its constant.
        leading: how many of these parameters come before the others.
    """
    for instruction in module.entry.instructions[:]:
        if instruction.opcode == "parameter" and instruction.parameter_number in memory:
            _become_constant(instruction, memory[instruction.parameter_number])
    renumber_parameters(module, range(leading, leading + weights.parameters))
    return {module.entry.id}


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
