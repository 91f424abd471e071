"""Repeated block of a real model: one module with as many instructions as a test needs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, ModuleProto

CHANNELS = 32


def block(x: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
    """A ResNet bottleneck and an attention-free transformer block of a UNet, with its normalisations."""

    def convolution(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    y = jax.nn.relu(convolution(x, weights["narrow"]) * weights["scale"] + weights["shift"])
    y = jax.nn.relu(convolution(y, weights["spatial"]) + weights["bias"])
    x = jax.nn.relu(convolution(y, weights["wide"]) + x)
    mean, variance = jnp.mean(x, axis=(1, 2), keepdims=True), jnp.var(x, axis=(1, 2), keepdims=True)
    y = jax.nn.silu((x - mean) * jax.lax.rsqrt(variance + 1e-5))
    tokens = convolution(y, weights["spatial"]).reshape(-1, CHANNELS)
    hidden = jax.nn.gelu(tokens @ weights["up"] + weights["up_bias"])
    return x + (hidden @ weights["down"] + weights["bias"]).reshape(x.shape)


def step(x: jax.Array, weights: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The block, and its weights after a step of gradient descent, as a training loop with donated weights has it."""
    gradients = jax.grad(lambda weights: jnp.sum(block(x, weights) ** 2))(weights)
    return block(x, weights), jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients)


def optimized(function=block) -> bytes:
    """The block, or the step, as XLA leaves it."""
    kernels = {"narrow": (1, 1), "spatial": (3, 3), "wide": (1, 1)}
    shapes = {name: (*size, CHANNELS, CHANNELS) for name, size in kernels.items()}
    shapes |= {name: (CHANNELS,) for name in ("scale", "shift", "bias")}
    shapes |= {"up": (CHANNELS, 4 * CHANNELS), "up_bias": (4 * CHANNELS,), "down": (4 * CHANNELS, CHANNELS)}
    weights = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    compiled = jax.jit(function, keep_unused=True).lower(np.ones((1, 16, 16, CHANNELS), "float32"), weights).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    return module.as_serialized_hlo_module_proto()


def repeated(serialized: bytes, instructions: int) -> bytes:
    """The module's entry, one after another until there are that many instructions.

    Each copy has parameters and fused computations of its own; its parameter 0 is the result of the one before. Of
    an entry with several results that is the first; the others are results of the whole, in the place of the
    copy's other parameters.
    """
    source = Module.from_bytes(serialized)
    entry = source.entry
    fused = [computation for computation in source.proto.computations if computation.id != entry.id]
    size = sum(len(computation.instructions) for computation in source.proto.computations)
    # Parameters besides the first.
    own = sum(instruction.opcode == "parameter" for instruction in entry.instructions) - 1
    whole = ModuleProto(name="repeated", entry_computation_id=1)
    chain = ComputationProto(name="main", id=1, execution_thread=entry.execution_thread)
    last = 0
    shapes: dict[int, object] = {}
    results: list[tuple[int, int]] = []
    root = next(instruction for instruction in entry.instructions if instruction.id == entry.root_id)
    for number in range(max(1, instructions // size)):
        shift = (number + 1) * 100_000
        for computation in fused:
            _add_fused(whole.computations.add(), computation, number, shift)
        renamed: dict[int, int] = {}
        for instruction in entry.instructions:
            if instruction.opcode == "parameter" and instruction.parameter_number == 0 and number:
                renamed[instruction.id] = last
                continue
            if instruction is root and root.opcode == "tuple":
                continue
            copy = chain.instructions.add()
            copy.CopyFrom(instruction)
            copy.id = renamed[instruction.id] = len(chain.instructions) + 1
            copy.name = f"{instruction.name}_{number}"
            del copy.operand_ids[:], copy.called_computation_ids[:], copy.control_predecessor_ids[:]
            copy.operand_ids.extend(renamed[operand] for operand in instruction.operand_ids)
            copy.called_computation_ids.extend(called + shift for called in instruction.called_computation_ids)
            if copy.opcode == "parameter":
                copy.parameter_number += number * own
                shapes[copy.parameter_number] = copy.shape
        if root.opcode != "tuple":
            last = renamed[entry.root_id]
            continue
        last, *others = (renamed[operand] for operand in root.operand_ids)
        results += zip(others, range(number * own + 1, number * own + own + 1), strict=True)
    chain.program_shape.parameters.extend(shapes[number] for number in sorted(shapes))
    chain.program_shape.parameter_names.extend(f"p{number}" for number in sorted(shapes))
    chain.root_id = last
    chain.program_shape.result.CopyFrom(entry.program_shape.result)
    if results:
        _add_results(whole, chain, last, results)
    whole.computations.add().CopyFrom(chain)
    return whole.SerializeToString()


def _add_results(whole, chain, last: int, results: list[tuple[int, int]]) -> None:
    """A tuple of everything, with each updated parameter in the buffer of the one it replaces."""
    shapes = {instruction.id: instruction.shape for instruction in chain.instructions}
    root = chain.instructions.add(opcode="tuple", name="results", id=len(chain.instructions) + 2)
    root.operand_ids.extend((last, *(identifier for identifier, _ in results)))
    root.shape.element_type = ELEMENT_TYPE_NUMBERS["tuple"]
    root.shape.tuple_shapes.extend(shapes[identifier] for identifier in root.operand_ids)
    chain.root_id = root.id
    chain.program_shape.result.CopyFrom(root.shape)
    for place, (_, parameter) in enumerate(results, 1):
        whole.input_output_alias.entries.add(output_shape_index=[place], parameter_number=parameter)


def _add_fused(copy, computation, number: int, shift: int) -> None:
    copy.CopyFrom(computation)
    copy.id = computation.id + shift
    copy.name = f"{computation.name}_{number}"
    for instruction in copy.instructions:
        instruction.name = f"{instruction.name}_{number}"
        called = [identifier + shift for identifier in instruction.called_computation_ids]
        del instruction.called_computation_ids[:]
        instruction.called_computation_ids.extend(called)
