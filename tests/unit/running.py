"""Test helper: runs a module before and after the pipeline on the same inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of
from matching import serialized
from side_by_side import assert_close, run_module

NAMES = {"f32": "float32", "bf16": "bfloat16", "s32": "int32"}


def rewritten(text: str, policy: str = "always") -> Module:
    """What the pass makes of the module."""
    result = hlo_dispatch.rewrite(serialized(text), policy=policy)
    assert result.proto is not None, [str(region.refusal) for region in result.report.regions]
    return Module.from_bytes(result.proto)


def rewritten_and_run(text: str) -> Module:
    """The same, after XLA has compiled and run both forms and their results agree."""
    module = rewritten(text)
    assert_computes_the_same(module, text)
    return module


def assert_computes_the_same(module: Module, text: str) -> None:
    """XLA compiles and runs a module and the one of the text, and their results agree."""
    original = serialized(text)
    random = np.random.default_rng(3)
    parameters = Module.from_bytes(original).entry.program_shape.parameters
    inputs = [random_value(random, shape_of(proto)) for proto in parameters]
    result = Module.from_bytes(original).entry.program_shape.result
    parts = [struct(shape_of(part)) for part in result.tuple_shapes]
    result_shape = tuple(parts) if parts else struct(shape_of(result))
    stock = run_module(original, inputs, result_shape)
    for stock_value, value in zip(stock, run_module(module.to_bytes(), inputs, result_shape), strict=True):
        assert_close(value, stock_value, 1e-4)


def random_value(random: np.random.Generator, shape: Shape) -> np.ndarray:
    if shape.element_type == "s32":
        return np.ones(shape.dimensions, "int32")
    return (random.standard_normal(shape.dimensions) / 4).astype(jnp.dtype(NAMES[shape.element_type]))


def struct(shape: Shape) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.dimensions, jnp.dtype(NAMES[shape.element_type]))


def opcodes(module: Module, instruction) -> list[str]:
    """What a fusion holds besides its parameters, or the instruction's own opcode."""
    if instruction.opcode != "fusion":
        return [instruction.opcode]
    inside = module.computations[instruction.called_computation_ids[0]].instructions
    return [proto.opcode for proto in inside if proto.opcode != "parameter"]


def fusions(module: Module) -> dict[str, tuple[str, str]]:
    """What each of the entry's fusions computes → its kind and its backend_config; async padding is left out."""
    return {
        " ".join(opcodes(module, proto)): (proto.fusion_kind, proto.backend_config.decode())
        for proto in module.entry.instructions
        if proto.opcode == "fusion" and not proto.name.startswith("async_padding")
    }


def calls(module: Module) -> list[str]:
    """The post-ops of every kernel call of the entry, as far as their algorithms say."""
    return [
        proto.backend_config.decode()
        for proto in module.entry.instructions
        if proto.opcode == "custom-call" and proto.custom_call_target.startswith("hlo_dispatch.")
    ]
