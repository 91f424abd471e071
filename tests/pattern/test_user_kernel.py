"""The worked example of patterns/examples, followed to the letter: built, installed both ways, and compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment
from hlo_dispatch.pattern import shipped_tables
from warm import run_python

EXAMPLES = shipped_tables()[0].parent / "examples"

PROGRAM = """
import os, sys
import jax, numpy as np, hlo_dispatch

if os.environ.get("HLO_DISPATCH") != "1":
    hlo_dispatch.install(tables=["mine.yaml"], policy=sys.argv[1])

def block(x, scale, residual):
    return x * jax.nn.sigmoid(1.5 * x) * scale + residual

def other_way_round(x, scale, residual):
    return residual + scale * (x / (1 + jax.numpy.exp(x * -1.5)))

random = np.random.default_rng(3)
for shape in ((3, 40, 64), (1, 9), (5, 8)):
    x, scale, residual = (random.standard_normal(s).astype("float32") for s in (shape, shape[-1:], shape))
    x64, scale64, residual64 = (array.astype("float64") for array in (x, scale, residual))
    wanted = x64 / (1 + np.exp(-1.5 * x64)) * scale64 + residual64
    for program in (block, other_way_round):
        compiled = jax.jit(program).lower(x, scale, residual).compile()
        assert compiled.as_text().count('custom_call_target="mine.scaled_silu"') == 1, compiled.as_text()
        assert "beta = 1.5 : f32" in compiled.as_text()
        assert np.abs(np.asarray(compiled(x, scale, residual)) - wanted).max() < 3e-6

# Inside a loop, reading and replacing what it carries. (Without a product the newest XLA makes it a small call.)
x, scale, residual = (random.standard_normal(shape).astype("float32") for shape in ((256, 256), (256,), (256, 256)))
x64, scale64, residual64 = (array.astype("float64") for array in (x, scale, residual))

def steps(x, scale, residual):
    same = np.eye(256, dtype="float32")
    return jax.lax.fori_loop(0, 3, lambda i, both: (block(both[0], scale, both[1] @ same), both[0]), (x, residual))

wanted = jax.tree.map(np.asarray, (x64, residual64))
for _ in range(3):
    wanted = wanted[0] / (1 + np.exp(-1.5 * wanted[0])) * scale64 + wanted[1], wanted[0]
compiled = jax.jit(steps, donate_argnums=(0, 2)).lower(x, scale, residual).compile()
assert 'custom_call_target="mine.scaled_silu"' in compiled.as_text()
for got, right in zip(compiled(jax.numpy.array(x), scale, jax.numpy.array(residual)), wanted):
    assert np.abs(np.asarray(got) - right).max() < 1e-4

# In bf16 the table makes no claim, and says so.
half = [array.astype(jax.numpy.bfloat16) for array in (x, scale, residual)]
report = hlo_dispatch.explain(block, *half)
assert [region.refusal.code for region in report.regions] == ["near-miss"], report
assert report.regions[0].refusal.sentence == (
    "scaled_silu: 4 of 4 operations matched; no numerics are declared for bf16"
), report

# The activation becomes a post-op of oneDNN's product.
w = random.standard_normal((64, 512)).astype("float32")
a = random.standard_normal((256, 64)).astype("float32")
compiled = jax.jit(lambda a, w: (lambda y: y * jax.nn.sigmoid(1.702 * y))(a @ w)).lower(a, w).compile()
report = hlo_dispatch.reports()[-1]
assert [region.formula for region in report.regions] == ["quick_gelu(x @ w)"], report
assert hlo_dispatch.statistics().failures == 0
print("done")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built with the very command of its README."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build a user's kernel with")
    made = tmp_path_factory.mktemp("example")
    for name in ("scaled_silu.cc", "mine.yaml"):
        shutil.copy(EXAMPLES / name, made)
    (command,) = re.findall(r"```bash\n(g\+\+ .*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-c", command], cwd=made, check=True, timeout=300, env=os.environ | {"PATH": path})
    return made


def run(code: str, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = clean_environment()
    settings = clean | {"JAX_PLATFORMS": "cpu", "HLO_DISPATCH_STRICT": "1"} | environment
    return run_python(code, *arguments, environment=settings, cwd=folder)


@pytest.mark.parametrize("policy", ["heuristic", "always"])
def test_installed(folder: Path, policy: str) -> None:
    done = run(PROGRAM, folder, policy)
    assert done.stdout == "done\n", done.stderr


def test_from_the_environment(folder: Path) -> None:
    done = run(PROGRAM, folder, HLO_DISPATCH="1", HLO_DISPATCH_TABLES="mine.yaml")
    assert done.stdout == "done\n", done.stderr


def test_never_is_never(folder: Path) -> None:
    code = """
import jax, numpy as np, hlo_dispatch
x = np.ones((4, 8), np.float32)
hlo_dispatch.install(tables=["mine.yaml"], policy="never")
text = jax.jit(lambda x, s, r: x * jax.nn.sigmoid(x) * s + r).lower(x, x[0], x).compile().as_text()
print("custom-call" in text)
"""
    assert run(code, folder).stdout == "False\n"


def test_the_command_line_checks_and_shows_it(folder: Path) -> None:
    command = [str(Path(sys.executable).parent / "hlo-dispatch"), "patterns"]

    def asked(*arguments: str) -> str:
        wide = os.environ | {"COLUMNS": "200"}
        done = subprocess.run([*command, *arguments], cwd=folder, env=wide, capture_output=True, text=True, check=True)
        return done.stdout

    assert asked("check", "mine.yaml") == "OK: 3 entries in mine.yaml\n"
    shown = asked("show", "scaled_silu", "--tables", "mine.yaml")
    assert "add(multiply(swish(x, beta), broadcast(scale, along=[-1])), residual)" in shown
    assert "scale has a last dimension of at least 8" in shown


LIBRARY = """
import hlo_dispatch
hlo_dispatch.load_tables(["mine.yaml"])
print("scaled_silu.so" in open("/proc/self/maps").read())
try:
    hlo_dispatch.install(tables=["mine.yaml"])
except hlo_dispatch.TableError as error:
    print(error)
print(hlo_dispatch.installed())
"""


def test_reading_a_table_loads_nothing_and_installing_it_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    table = (folder / "mine.yaml").read_text()
    shutil.copy(folder / "libscaled_silu.so", tmp_path)
    (tmp_path / "mine.yaml").write_text(table.replace("symbol: ScaledSilu", "symbol: ScaledSilo"))
    assert run(LIBRARY, tmp_path).stdout == (
        "False\n"
        f"mine.yaml:15:13: {tmp_path.resolve()}/libscaled_silu.so has no symbol 'ScaledSilo'; "
        "`nm -D libscaled_silu.so` lists those it has; XLA_FFI_DEFINE_HANDLER_SYMBOL makes one\n"
        "False\n"
    )
    (tmp_path / "mine.yaml").write_text(table)
    (tmp_path / "libscaled_silu.so").write_text("no library at all")
    done = run(LIBRARY, tmp_path).stdout
    assert "mine.yaml:15:13:" in done
    assert "libscaled_silu.so cannot be loaded" in done


def test_one_target_has_one_kernel(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "again")
    code = """
import hlo_dispatch
hlo_dispatch.install(tables=["mine.yaml"])
hlo_dispatch.install(tables=["mine.yaml"])
try:
    hlo_dispatch.install(tables=[AGAIN])
except hlo_dispatch.TableError as error:
    print("choose another target" in str(error))
""".replace("AGAIN", repr(str(tmp_path / "again" / "mine.yaml")))
    assert run(code, folder).stdout == "True\n"
