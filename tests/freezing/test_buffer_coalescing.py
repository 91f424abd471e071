"""Buffer coalescing: small values that only call groups read are one argument, and results stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.api import pipeline
from hlo_dispatch.freezing.callable import Frozen
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ModuleProto
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.partition import buffer_coalescing
from hlo_dispatch.passes.partition.buffer_coalescing import COALESCED_SHARE, coalesce_buffers
from hlo_dispatch.process.machine import this_machine
from processor import lacks

LAYERS = 4


def layer(p: Any, x: jax.Array) -> jax.Array:
    dimensions = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dimensions)
    return jax.nn.relu(x * p["s"] + p["b"])


def network(p: Any, x: jax.Array) -> Any:
    for one in p["layers"]:
        x = layer(one, x)
    return x.mean((1, 2)) @ p["head"]


def weights(dtype: str = "float32", channels: int = 16, seed: int | None = None) -> Any:
    generator = np.random.default_rng(seed)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(generator.uniform(-0.5, 0.5, shape), dtype)

    one = [
        {"w": array(1 + 2 * (n % 2), 1 + 2 * (n % 2), channels, channels), "s": array(channels), "b": array(channels)}
        for n in range(LAYERS)
    ]
    return {"layers": one, "head": array(channels, 64 * COALESCED_SHARE * channels)}


def image(dtype: str = "float32", channels: int = 16) -> jax.Array:
    return jnp.asarray(np.random.default_rng().standard_normal((1, 7, 5, channels)), dtype)


def frozen(fn: Any, p: Any, x: jax.Array) -> Frozen:
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(fn, p)
        fast(x)
    return fast


def together(fast: Frozen) -> list[str]:
    (program,) = fast.report.programs
    return [value.origin for value in program.prepared if value.origin.endswith(" small values")]


def arguments(fast: Frozen) -> int:
    (program,) = fast.report.programs
    return len(program.prepared) + len(program.kept)


@pytest.mark.parametrize("channels", [3, 16, 24])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_small_values_are_one_argument(monkeypatch: pytest.MonkeyPatch, dtype: str, channels: int) -> None:
    if dtype == "bfloat16" and (lacks("bf16") or "avx512_bf16" not in this_machine().features):
        pytest.skip(lacks("bf16") or "without instructions for bf16 most biases are XLA's to add")
    p, x = weights(dtype, channels), image(dtype, channels)
    fast = frozen(network, p, x)
    monkeypatch.setattr(buffer_coalescing, "COALESCED_SHARE", 1 << 60)  # nothing is as small
    one_by_one = frozen(network, p, x)
    np.testing.assert_array_equal(fast(x), one_by_one(x))
    assert len(together(fast)) == 1, fast.report
    assert not together(one_by_one)
    count = int(together(fast)[0].split()[0])
    assert count >= LAYERS
    assert arguments(fast) == arguments(one_by_one) - count + 1
    padding = 64 * arguments(one_by_one)
    assert one_by_one.nbytes <= fast.nbytes <= one_by_one.nbytes + padding


def test_what_something_else_reads_is_an_argument_of_its_own() -> None:
    def also(p: Any, x: jax.Array) -> Any:
        return network(p, x), p["layers"][1]["b"] * 2, p["layers"][2]["b"]

    p, x = weights(), image()
    fast = frozen(also, p, x)
    assert together(fast)
    for found, expected in zip(fast(x), jax.jit(also)(p, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_what_is_held_can_be_updated() -> None:
    p, q, x = weights(), weights(), image()
    fast = frozen(network, p, x)
    before = fast(x)
    fast.update(q)
    np.testing.assert_array_equal(fast(x), frozen(network, q, x)(x))
    fast.update(p)
    np.testing.assert_array_equal(fast(x), before)


def test_what_is_held_is_saved(tmp_path: Path) -> None:
    p, x = weights(), image()
    fast = frozen(network, p, x)
    fast.save(tmp_path / "network")
    loaded = hlo_dispatch.load(tmp_path / "network")
    np.testing.assert_array_equal(loaded(x), fast(x))
    assert loaded.nbytes == fast.nbytes
    assert str(loaded.report) == str(fast.report)


def test_several_programs_hold_what_is_theirs() -> None:
    p = weights()
    fast = frozen(network, p, image())
    large = jnp.concatenate([image(), image()])
    with hlo_dispatch.enabled(policy="always"):
        found = fast(large)
    np.testing.assert_allclose(found, jax.jit(network)(p, large), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(frozen(network, p, large)(large), found)


def test_layers_in_a_scan() -> None:
    def scanned(p: Any, x: jax.Array) -> Any:
        x, _ = jax.lax.scan(lambda x, one: (layer(one, layer(p["layers"][0], x)), None), x, p["stack"])
        return network(p, x)

    p, x = weights(), image()
    alike = [weights()["layers"][0] for _ in range(3)]
    p["stack"] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)
    fast = frozen(scanned, p, x)
    np.testing.assert_allclose(fast(x), jax.jit(scanned)(p, x), rtol=1e-3, atol=1e-3)


def test_constants_are_held_as_well() -> None:
    """A closure's large constants are prepared while it is compiled, by the same halves."""
    p, x = weights(channels=64), image(channels=64)
    with hlo_dispatch.enabled(policy="always"):
        found = jax.jit(lambda x: network(p, x))(x)
    np.testing.assert_allclose(found, jax.jit(network)(p, x), rtol=1e-3, atol=1e-3)


def test_little_is_left_alone() -> None:
    """There is no sequence, or nothing is prepared."""
    p, x = weights(), image()
    alike = p["layers"][:1]
    fast = frozen(lambda alike, x: layer(alike[0], x), alike, x)
    assert not together(fast), fast.report
    context = PassContext(pipeline((), "always").planner)
    context.split = nothing = Split(None, [], [], Module(ModuleProto()), [], [])
    assert not coalesce_buffers(nothing.program, context)
    assert nothing.preprocessed == []


def test_the_program_takes_so_many_arguments() -> None:
    fast = frozen(network, weights(), image())
    (program,) = fast.report.programs
    assert program.dispatched is not None
    assert program.dispatched.sequences
    (shape,) = [value.shape for value in program.prepared if value.origin.endswith(" small values")]
    assert shape.startswith("u8[")
    assert int(shape[3 : shape.index("]")]) % 64 == 0
