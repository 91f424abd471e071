"""Large constants of a module are preprocessed during compilation, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.api import pipeline
from hlo_dispatch.cli.application import app
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.literals import literal_of, memory_of
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, row_major, shape_of
from hlo_dispatch.jax_plugin import hook
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.jax_plugin.failure_log import FailureLog
from hlo_dispatch.jax_plugin.tuning import tune_module
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.partition import constant_weights
from hlo_dispatch.passes.partition.constant_weights import extract_constants, restore_constants

RANDOM = np.random.default_rng(0)
PACK = "hlo_dispatch.onednn.pack"


def array(*shape: int, dtype: str = "float32") -> Any:
    return np.asarray(jnp.asarray(RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[:-1])), dtype))


def compiled(function: Callable[..., Any], *args: Any, policy: str = "always", **options: Any) -> Any:
    with hlo_dispatch.enabled(policy=policy):
        return jax.jit(lambda *args: function(*args), **options).lower(*args).compile()


def constants_of(executable: Any) -> list[str]:
    """Shapes of the large constants of the program."""
    module = Module.from_bytes(hlo_text.from_text(executable.as_text()))
    shapes = [shape_of(i.shape) for i in module.entry.instructions if i.opcode == "constant"]
    return sorted(f"{shape.element_type}{list(shape.dimensions)}" for shape in shapes if shape.bytes >= 8192)


def assert_near(got: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    got, wanted = np.asarray(got, "float64"), np.asarray(wanted, "float64")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2), ("float16", 4e-3)])
@pytest.mark.parametrize("shape", [(32, 192, 257), (7, 1024, 129), (64, 512, 512)], ids=str)
def test_weights_of_products_are_prepacked(shape: tuple[int, int, int], dtype: str, tolerance: float) -> None:
    rows, inner, columns = shape
    w, b, x = array(inner, columns, dtype=dtype), array(columns), jnp.asarray(array(rows, inner, dtype=dtype))
    executable = compiled(lambda x: jax.nn.gelu((x @ w).astype("float32") + b), x)
    exact = jax.nn.gelu(np.asarray(x, "float64") @ np.asarray(w, "float64") + b)
    assert_near(executable(x), exact, tolerance)
    assert PACK not in executable.as_text(), "not in a call"
    held = constants_of(executable)
    if "weights_format" in executable.as_text():
        assert [shape.split("[")[0] for shape in held] == ["u8"], "the plain weights are gone"


def test_scales_go_into_a_convolutions_weights() -> None:
    w, scale, shift, x = array(3, 3, 64, 96), array(96) + 2, array(96), array(1, 28, 28, 64)

    def network(x: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y * scale + shift)

    executable = compiled(network, x)
    assert_near(executable(x), jax.jit(network)(x))
    assert hlo_dispatch.reports()[-1].dispatched[0].formula == "relu(conv(x, w·s) + b)"
    assert [shape.split("[")[0] for shape in constants_of(executable)] == ["u8"]


def test_what_is_read_as_it_is_stays() -> None:
    w, x = array(256, 256), array(16, 256)
    executable = compiled(lambda x: jnp.tanh(x @ w) + w[:16], x)
    assert_near(executable(x), np.tanh(x @ w) + w[:16])
    assert any(shape.startswith("f32[256") or shape.startswith("f32[16, 256") for shape in constants_of(executable))


@pytest.mark.parametrize("policy", ["measure", "heuristic", "always", "never"])
def test_every_policy(policy: str) -> None:
    w, v, x = array(512, 2048), array(2048, 512), array(32, 512)
    executable = compiled(lambda x: jax.nn.gelu(x @ w) @ v, x, policy=policy)
    assert_near(executable(x), jax.jit(lambda x: jax.nn.gelu(x @ w) @ v)(x))
    assert PACK not in executable.as_text()
    if policy == "never":
        assert constants_of(executable) == ["f32[2048, 512]", "f32[512, 2048]"]


def test_small_constants_stay_as_they_are() -> None:
    w, x = array(64, 32), array(512, 64)
    executable = compiled(lambda x: jnp.tanh(x @ w), x)
    assert constants_of(executable) == ["f32[64, 32]"]


def test_loops_and_donated_arguments() -> None:
    w, x = array(256, 256), array(64, 256)

    def network(x: Any, y: Any) -> Any:
        x, _ = jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=3)
        return jnp.tanh(x @ w), y + 1

    executable = compiled(network, jnp.asarray(x), jnp.asarray(x), donate_argnums=1)
    wanted = jax.jit(network)(x, x)
    for got, want in zip(executable(jnp.array(x), jnp.array(x)), wanted, strict=True):
        assert_near(got, want)
    with hlo_dispatch.enabled(policy="never"):
        plain = jax.jit(lambda *args: network(*args), donate_argnums=1).lower(x, x).compile()
    if tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 12):  # until then any pass that answers loses them
        assert ("input_output_alias" in executable.as_text()) == ("input_output_alias" in plain.as_text())


@pytest.fixture
def _preparing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: Module) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(constant_weights.executable, "Executable", fail)
    monkeypatch.setenv("HLO_DISPATCH_STRICT", "0")
    monkeypatch.setattr(hook, "failure_log", FailureLog())


@pytest.mark.usefixtures("_preparing_fails")
def test_what_fails_leaves_the_constants(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    w, x = array(256, 256), array(64, 256)
    executable = compiled(lambda x: jnp.tanh(x @ w), x)
    assert_near(executable(x), np.tanh(x @ w))
    assert "hlo_dispatch.onednn.matmul" in executable.as_text()
    assert constants_of(executable) == ["f32[256, 256]"]
    assert "no luck" in caplog.text
    monkeypatch.setenv("HLO_DISPATCH_STRICT", "1")
    with pytest.raises(Exception, match="no luck"):
        compiled(lambda x: jnp.tanh(x @ w), x)


@pytest.mark.usefixtures("_preparing_fails")
def test_what_fails_is_said_once_and_counted_always(caplog: pytest.LogCaptureFixture) -> None:
    w, x = array(256, 256), array(64, 256)
    before = hlo_dispatch.statistics()
    for function in (jnp.tanh, jnp.exp):
        compiled(lambda x, function=function: function(x @ w), x)
        assert "constants could not be preprocessed" in hlo_dispatch.reports()[-1].failure
        assert "RuntimeError: no luck" in hlo_dispatch.reports()[-1].failure
    after = hlo_dispatch.statistics()
    assert (after.failures - before.failures, after.rewritten - before.rewritten) == (2, 2)
    (said,) = (record.getMessage() for record in caplog.records if record.name == "hlo_dispatch")
    kept = Path(said.partition("The module is in ")[2].partition(";")[0])
    assert "RuntimeError: no luck" in said
    assert Module.from_bytes(kept.read_bytes()).name
    kept.unlink()


@pytest.mark.usefixtures("_preparing_fails")
def test_what_fails_while_it_is_said_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureLog, "warn", lambda *_: 1 / 0)
    w, x = array(256, 256), array(64, 256)
    assert "hlo_dispatch.onednn.matmul" in compiled(lambda x: jnp.tanh(x @ w), x).as_text()


def test_preprocessing_did_not_fail() -> None:
    w, x = array(256, 256), array(64, 256)
    before = hlo_dispatch.statistics().failures
    compiled(lambda x: jnp.tanh(x @ w), x)
    assert (hlo_dispatch.reports()[-1].failure, hlo_dispatch.statistics().failures) == ("", before)


def test_rewriting_for_this_machine_is_asked_for() -> None:
    w, x = array(256, 256), array(64, 256)
    with hlo_dispatch.enabled(policy="never"):
        stock = jax.jit(lambda x: jnp.tanh(x @ w)).lower(x).compile()
    module = stock.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    plain = hlo_dispatch.rewrite(module, policy="always")
    ours = hlo_dispatch.rewrite(module, policy="always", prepare_constants=True, details=True)
    assert "packed" not in plain.text
    assert "f32[256,256]" in plain.text
    assert "weights_format" in ours.text
    assert PACK not in ours.text
    assert ours.report.before == module
    assert ours.report.after == ours.proto
    assert "constant preprocessing" in ours.report.stages


def test_the_command_does_so_too(tmp_path: Path) -> None:
    w = array(256, 256)
    with hlo_dispatch.enabled(policy="never"):
        stock = jax.jit(lambda x: jnp.tanh(x @ w)).lower(array(64, 256)).compile()
    source, out = tmp_path / "in.pb", tmp_path / "out.pb"
    source.write_bytes(stock.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    for options in ([], ["--prepare-constants"]):
        words = ["rewrite", str(source), "-o", str(out), "--policy", "always", "--no-table", *options]
        assert not app(words, prog_name="hlo-dispatch", standalone_mode=False)
        assert (b"packed_layout" in out.read_bytes()) == bool(options)


@pytest.mark.usefixtures("_preparing_fails")
def test_the_command_says_what_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    w = array(256, 256)
    with hlo_dispatch.enabled(policy="never"):
        stock = jax.jit(lambda x: jnp.tanh(x @ w)).lower(array(64, 256)).compile()
    source, out = tmp_path / "in.pb", tmp_path / "out.pb"
    source.write_bytes(stock.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    words = ["rewrite", str(source), "-o", str(out), "--policy", "always", "--prepare-constants"]
    assert not app(words, prog_name="hlo-dispatch", standalone_mode=False)
    assert "constants could not be preprocessed" in " ".join(capfd.readouterr().err.split())
    assert b"hlo_dispatch.onednn.matmul" in out.read_bytes()


def test_tuning_sees_what_compiling_sees() -> None:
    w, x = array(256, 1024), array(64, 256)
    tuned = tune_module(optimized(lambda x: jax.nn.gelu(x @ w), x), validate_only=True)
    assert "constant extraction" in tuned.report.stages
    assert not tuned.reproducers


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "f64", "u8", "pred"])
def test_literals_hold_what_is_in_memory(kind: str) -> None:
    shape = row_major(kind, (3, 50))
    size = {"f32": 4, "f64": 8, "u8": 1, "pred": 1}.get(kind, 2)
    memory = bytes(number % 2 for number in range(150 * size))
    literal = literal_of(shape, memory)
    assert literal is not None
    assert shape_of(literal.shape) == shape
    assert memory_of(literal) == memory
    assert literal_of(row_major("s4", (3,)), b"abc") is None


def test_a_constant_of_another_layout_keeps_its_bytes() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4,128]{1,0} parameter(0)
  w = f32[128,256]{0,1} constant({...})
  ROOT d = f32[4,256]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    module = Module.from_bytes(hlo_text.from_text(text))
    constant = next(i for i in module.entry.instructions if i.opcode == "constant")
    lying = Shape("f32", (128, 256), (0, 1))
    values = array(256, 128)
    literal = literal_of(lying, values.tobytes())
    assert literal is not None
    constant.literal.CopyFrom(literal)
    constant.shape.CopyFrom(lying.to_proto())
    before, context = module.copy(), PassContext(pipeline((), "always").planner)
    extract_constants(module, context)
    weights = context.weights
    assert weights is not None
    assert [str(shape) for shape in weights.shapes] == ["f32[256,128]{1,0}"]
    assert bytes(weights.memory[0]) == values.tobytes()
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "parameter", "bitcast", "dot"]
    restore_constants(module, context)
    assert module.entry.program_shape == before.entry.program_shape
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "constant", "bitcast", "dot"]


def test_no_loop_holds_more_than_scalars() -> None:
    """XLA takes loops for one that differ in nothing but the elements of constants in them, and puts none there."""
    fused = """fused.{n} {{
  x = f32[8,64]{{1,0}} parameter(0)
  w = f32[64,64]{{1,0}} parameter(1)
  d = f32[8,64]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  two = f32[] constant(2)
  twos = f32[8,64]{{1,0}} broadcast(two), dimensions={{}}
  c = f32[64]{{0}} constant({{{values}}})
  b = f32[8,64]{{1,0}} broadcast(c), dimensions={{1}}
  a = f32[8,64]{{1,0}} atan2(d, b)
  ROOT m = f32[8,64]{{1,0}} atan2(a, twos)
}}
"""
    values = [RANDOM.standard_normal(64).astype("float32") for _ in range(2)]
    text = "HloModule m\n" + "".join(
        fused.format(n=number, values=", ".join(map(str, own))) for number, own in enumerate(values)
    )
    call = "f32[8,64]{1,0} fusion(%s, w), kind=kCustom, calls=fused.%d"
    text += "ENTRY e {\n x = f32[8,64]{1,0} parameter(0)\n w = f32[64,64]{1,0} parameter(1)\n"
    text += f" first = {call % ('x', 0)}\n ROOT second = {call % ('first', 1)}\n}}"
    ours = hlo_dispatch.rewrite(text, policy="always").proto
    assert ours is not None
    module = Module.from_bytes(ours)
    inside = [i for c in module.proto.computations if c.id != module.entry.id for i in c.instructions]
    assert [i.opcode for i in inside].count("atan2") == 4
    assert all(shape_of(i.shape).elements == 1 for i in inside if i.opcode == "constant")
    x, w = array(8, 64), array(64, 64)
    constant_weights.executable.start()
    hlo_dispatch.register_kernels()
    got = constant_weights.executable.Executable(Module.from_bytes(ours))(
        constant_weights.executable.to_device([x, w])
    )[0]
    wanted = x
    for own in values:
        wanted = np.arctan2(np.arctan2(wanted @ w, own), 2)
    assert_near(got, wanted)
