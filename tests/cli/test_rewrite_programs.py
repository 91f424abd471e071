"""`hlo-dispatch rewrite` on what XLA has not optimized: StableHLO of any front end, HLO before optimization."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment
from warm import run_python

CALLED = 'custom_call_target="hlo_dispatch.onednn.sequence"'
CALLS = """
// relu(x @ w + b) twice, as another front end might write it
module @by_hand {
  func.func private @layer(%x: tensor<33x64xf32>, %w: tensor<64x64xf32>, %b: tensor<64xf32>) -> tensor<33x64xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<33x64xf32>, tensor<64x64xf32>) -> tensor<33x64xf32>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<64xf32>) -> tensor<33x64xf32>
    %2 = stablehlo.add %0, %1 : tensor<33x64xf32>
    %3 = func.call @activation(%2) : (tensor<33x64xf32>) -> tensor<33x64xf32>
    return %3 : tensor<33x64xf32>
  }
  func.func private @activation(%x: tensor<33x64xf32>) -> tensor<33x64xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<33x64xf32>
    %0 = stablehlo.maximum %x, %c : tensor<33x64xf32>
    return %0 : tensor<33x64xf32>
  }
  func.func public @network(%x: tensor<33x64xf32>, %w: tensor<64x64xf32>, %b: tensor<64xf32>) -> tensor<33x64xf32> {
    %0 = func.call @layer(%x, %w, %b) : (tensor<33x64xf32>, tensor<64x64xf32>, tensor<64xf32>) -> tensor<33x64xf32>
    %1 = func.call @layer(%0, %w, %b) : (tensor<33x64xf32>, tensor<64x64xf32>, tensor<64xf32>) -> tensor<33x64xf32>
    return %1 : tensor<33x64xf32>
  }
}
"""
LOAD = """
import sys
import jax, numpy as np
from jax._src.lib import xla_client
import hlo_dispatch

hlo_dispatch.register_kernels()
(device,) = jax.devices("cpu")
given = np.load(sys.argv[2])
with open(sys.argv[1], "rb") as file:
    data = file.read()
devices, options = xla_client.DeviceList((device,)), xla_client.CompileOptions()
loaded = device.client.deserialize_executable(data, devices, options)
results = loaded.execute_sharded([jax.device_put(given[name]) for name in "xwb"])
((result,),) = results.disassemble_into_single_device_arrays()
np.save(sys.argv[3], np.asarray(result))
print("hlo_dispatch.onednn.sequence" in loaded.hlo_modules()[0].to_string())
"""


def two_layers(x, w, b):
    import jax

    def layer(x):
        return jax.nn.relu(x @ w + b)

    return layer(layer(x))


@pytest.fixture(scope="session")
def given():
    import numpy as np

    random = np.random.default_rng(3)
    return {name: random.standard_normal(shape, dtype="float32") for name, shape in SHAPES.items()}


SHAPES = {"x": (33, 64), "w": (64, 64), "b": (64,)}


@pytest.fixture(scope="session")
def programs(given) -> dict[str, bytes]:
    """The same program as front ends write it, by the name of a file for it."""
    import jax
    from jax import export
    from jax.extend.mlir import serialize_portable_artifact

    lowered = jax.jit(two_layers).lower(*given.values())
    before = lowered.compiler_ir("hlo")
    return {
        "exported.mlirbc": export.export(jax.jit(two_layers))(*given.values()).mlir_module_serialized,
        "older.mlirbc": serialize_portable_artifact(lowered.compiler_ir("stablehlo"), "1.0.0"),
        "lowered.mlir": lowered.as_text().encode(),
        "before.pb": before.as_serialized_hlo_module_proto(),
        "before.hlo": lowered.as_text(dialect="hlo").encode(),
        "by_hand.mlir": CALLS.encode(),
    }


NAMES = ("exported.mlirbc", "older.mlirbc", "lowered.mlir", "before.pb", "before.hlo", "by_hand.mlir")


def options(name: str) -> list[str]:
    return ["--policy", "always", *(["--optimize"] if name.startswith("before") else [])]


@pytest.mark.parametrize("name", NAMES)
def test_what_front_ends_write_is_optimized_and_rewritten(run, tmp_path, programs, name) -> None:
    (tmp_path / name).write_bytes(programs[name])
    done = run("rewrite", name, *options(name))
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().count(CALLED) == 1
    assert b"relu(x @ w + " in done.stderr
    named = "HloModule by_hand" if name == "by_hand.mlir" else "HloModule jit_two_layers"
    assert done.stdout.decode().startswith(named)
    assert "hlo_dispatch_stand_in" not in done.stdout.decode()


@pytest.mark.parametrize("name", NAMES)
def test_an_executable_is_loaded_and_run_by_another_process(run, tmp_path, programs, given, name) -> None:
    import numpy as np

    (tmp_path / name).write_bytes(programs[name])
    done = run("rewrite", name, "--compile", "-o", "program.xla", *options(name))
    assert done.returncode == 0, done.stderr.decode()
    np.savez(tmp_path / "given.npz", **given)
    files = [str(tmp_path / file) for file in ("program.xla", "given.npz", "result.npy")]
    loaded = run_python(LOAD, *files, environment=clean_environment())
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout == "True\n"
    x, w, b = (given[name].astype("float64") for name in "xwb")
    for _ in range(2):
        x = np.maximum(x @ w + b, 0)
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), x, rtol=1e-4, atol=1e-3)


def test_bytecode_comes_by_standard_input_too(run, programs) -> None:
    for name in ("exported.mlirbc", "lowered.mlir"):
        assert CALLED in run("rewrite", "-", "--policy", "always", input=programs[name]).stdout.decode()


def test_the_other_commands_take_programs_as_well(run, tmp_path, programs) -> None:
    for name in ("lowered.mlir", "before.hlo"):
        (tmp_path / name).write_bytes(programs[name])
    assert b"relu(x @ w" in run("explain", "lowered.mlir", "--policy", "always").stdout
    assert b"relu(x @ w" in run("explain", "before.hlo", "--optimize", "--policy", "always").stdout
    done = run("tune", "lowered.mlir", "--validate-only", env={"HLO_DISPATCH_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr.decode()
    done = run("profile", "lowered.mlir", "--policy", "always", "--runs", "2", "--seconds", "0.05", "--json")
    assert done.returncode == 0, done.stderr.decode()


def function(body: str, taken: str = "tensor<4xf32>", returned: str = "") -> str:
    returned = returned or taken
    return f"func.func @main(%a: {taken}) -> {returned} {{\n{body}\nreturn %0 : {returned}\n}}\n"


ADDED = "%0 = stablehlo.add %a, %a : "
PAIR = """
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }
func.func @g(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }
"""
WRONG = {
    "empty": ("", "the file is empty"),
    "syntax": (function("%0 = stablehlo.add %a, %b : tensor<4xf32>"), "line 2, column 24: use of undeclared SSA value"),
    "types": (function(ADDED + "tensor<5xf32>", returned="tensor<5xf32>"), "line 2, column 20: use of value '%a'"),
    "open": ("module {\n", "this StableHLO does not parse: line 1"),
    "prose": ("modul of mine\n", "this StableHLO does not parse: line 1, column 1"),
    "torch operation": (
        function("%0 = torch.aten.relu %a : tensor<4xf32>"),
        "line 2, column 6: the dialect torch is nothing",
    ),
    "torch type": (function("", "!torch.vtensor<[4],f32>"), "line 1, column 28: the dialect torch is nothing"),
    "linalg": (function("%0 = linalg.abs ins(%a : tensor<4xf32>)"), "line 2, column 6: the dialect linalg is nothing"),
    "arith": (function("%0 = arith.addf %a, %a : tensor<4xf32>"), "line 2, column 6: arith.addf is nothing"),
    "memory": ("func.func @main(%a: memref<4xf32>) { return }", "argument 0 of @main, memref<4xf32>, is nothing"),
    "modules": ("module @a {}\nmodule @b {}", "there are 2 modules in this file, and one is compiled at a time"),
    "functions": (PAIR, "it is not clear which of @f, @g is to be compiled: call that one @main"),
    "no function": ("module {}", "there is no function in this StableHLO"),
    "only private": (PAIR.replace("func @", "func private @"), "there is no function in this StableHLO"),
    "only declared": ("func.func private @main(tensor<4xf32>)", "there is no function in this StableHLO"),
    "dynamic": (
        function(ADDED + "tensor<?xf32>", "tensor<?xf32>"),
        "argument 0 of @main is tensor<?xf32>, and XLA:CPU",
    ),
    "unranked": (
        function("", "tensor<*xf32>").replace("%0", "%a"),
        "argument 0 of @main is tensor<*xf32>, and XLA:CPU",
    ),
    "partitions": (
        "module attributes {mhlo.num_partitions = 2 : i32} {" + function(ADDED + "tensor<4xf32>") + "}",
        "this program is for 2 partitions (mhlo.num_partitions)",
    ),
    "replicas": (
        "module attributes {mhlo.num_replicas = 8 : i32} {" + function(ADDED + "tensor<4xf32>") + "}",
        "this program is for 8 replicas (mhlo.num_replicas)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_program_that_cannot_be_compiled_is_one_sentence(run, one_line, tmp_path, case) -> None:
    text, says = WRONG[case]
    (tmp_path / "in.mlir").write_text(text)
    line = one_line(run("rewrite", "in.mlir", "-o", "out.pb"))
    assert line.startswith("hlo-dispatch: in.mlir: ")
    assert says in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.mlir"]


@pytest.mark.parametrize("length", [4, 5, 20, 100, 200, 500, -1])
@pytest.mark.parametrize("name", ["exported.mlirbc", "plain"])
def test_cut_bytecode_is_one_sentence(run, one_line, tmp_path, programs, name, length) -> None:
    whole = programs["exported.mlirbc"] if name != "plain" else _plain(programs["lowered.mlir"].decode())
    (tmp_path / "cut.mlirbc").write_bytes(whole[:length])
    line = one_line(run("rewrite", "cut.mlirbc", "-o", "out.pb"))
    assert "cut.mlirbc: this StableHLO does not parse: " in line
    assert "the file is cut or damaged" in line
    assert not (tmp_path / "out.pb").exists()


def _plain(text: str) -> bytes:
    """Bytecode that is no portable artifact."""
    import io

    from jax._src.lib.mlir import ir
    from jax.interpreters import mlir

    written = io.BytesIO()
    with mlir.make_ir_context(), ir.Location.unknown():
        ir.Module.parse(text).operation.write_bytecode(written)
    return written.getvalue()


def test_a_folder_is_no_program(run, one_line, tmp_path) -> None:
    (tmp_path / "folder.mlir").mkdir()
    assert one_line(run("rewrite", "folder.mlir")).endswith("folder.mlir: Is a directory")


def test_a_sharded_program_of_jax_is_refused(run, one_line, tmp_path) -> None:
    code = """
import sys, jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.make_mesh((2,), ("x",))
x = jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, PartitionSpec("x")))
open(sys.argv[1], "w").write(jax.jit(lambda x: x @ x).lower(x).as_text())
"""
    environment = clean_environment(JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "in.mlir")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "this program is for 2 partitions" in one_line(run("rewrite", "in.mlir", "-o", "out.pb"))


def test_an_executable_needs_a_file_and_an_optimized_module(run, one_line, tmp_path, programs, text_file) -> None:
    assert "name a file for it with -o" in one_line(run("rewrite", text_file, "--compile"))
    (tmp_path / "before.pb").write_bytes(programs["before.pb"])
    line = one_line(run("rewrite", "before.pb", "--compile", "-o", "out.xla"))
    assert "before.pb: XLA has not optimized this module yet" in line
    assert line.endswith("add --optimize")
    assert not (tmp_path / "out.xla").exists()


LAYOUTS = """HloModule columns, entry_computation_layout={(f32[4,8]{0,1}, f32[8,16]{1,0})->f32[4,16]{1,0}}
ENTRY main {
  a = f32[4,8]{0,1} parameter(0)
  b = f32[8,16]{1,0} parameter(1)
  ROOT d = f32[4,16]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("flags", [["--optimize"], ["--compile"]])
def test_arguments_by_columns_are_not_taken_for_rows(run, one_line, tmp_path, flags) -> None:
    (tmp_path / "in.hlo").write_text(LAYOUTS)
    assert "argument 0 of this module is f32[4,8]{0,1}" in one_line(run("rewrite", "in.hlo", "-o", "out.pb", *flags))
    assert not (tmp_path / "out.pb").exists()


def test_numbers_that_share_a_byte_are_compiled(run, tmp_path) -> None:
    (tmp_path / "in.mlir").write_text(function(ADDED + "tensor<4xi4>", "tensor<4xi4>"))
    assert run("rewrite", "in.mlir", "--compile", "-o", "out.xla").returncode == 0
    assert (tmp_path / "out.xla").stat().st_size > 0


def test_types_that_no_placeholder_takes_are_named(run, one_line, tmp_path) -> None:
    (tmp_path / "in.mlir").write_text(function(ADDED + "tensor<4xf8E5M2>", "tensor<4xf8E5M2>"))
    assert run("rewrite", "in.mlir", "-o", "out.pb").returncode == 0
    line = one_line(run("rewrite", "in.mlir", "--compile", "-o", "out.xla"))
    assert "no executable is made of a program that takes or returns f8e5m2" in line


def test_a_program_that_calls_back_is_rewritten_and_not_compiled(run, one_line, tmp_path) -> None:
    import jax
    import numpy as np

    def shown(x):
        jax.debug.print("{}", x)
        return x + 1

    (tmp_path / "in.mlir").write_text(jax.jit(shown).lower(np.ones(4, "float32")).as_text())
    assert run("rewrite", "in.mlir", "-o", "out.pb").returncode == 0
    line = one_line(run("rewrite", "in.mlir", "--compile", "-o", "out.xla"))
    assert "this program calls back into the Python that wrote it" in line


def test_the_function_says_what_to_do_with_stablehlo(programs: dict[str, bytes], tmp_path: Path) -> None:
    import hlo_dispatch

    for program in (programs["exported.mlirbc"], CALLS):
        with pytest.raises(hlo_dispatch.ModuleError, match=r"rewrite\(hlo_dispatch.optimize\(program\)\)"):
            hlo_dispatch.rewrite(program)
        rewritten = hlo_dispatch.rewrite(hlo_dispatch.optimize(program), policy="always")
        assert rewritten.report.regions[0].kernel == "onednn.matmul"
