"""`hlo-dispatch run` is Python, but for `jax.jit`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment

COMMAND = "import sys; from hlo_dispatch.cli.main import main; sys.exit(main())"
PROGRAM = """
import pickle, sys

class Point: pass

def fail(): raise ValueError("no")

if __name__ == "__main__":
    print(__file__, sys.argv, sys.path[0], __spec__ and __spec__.name)
    print(sorted(name for name in globals() if name.startswith("__")))
    assert type(pickle.loads(pickle.dumps(Point()))) is Point
    assert not {"jax", "typer", "dataclasses"} & set(sys.modules), "imports take time"
    what = sys.argv[1] if sys.argv[1:] else ""
    if what == "fail": fail()
    if what == "exit": sys.exit(7)
    if what == "sentence": sys.exit("a sentence")
    if what == "interrupt": import os, signal; os.kill(os.getpid(), signal.SIGINT); [0 for _ in range(1 << 30)]
    if what == "hook":
        sys.excepthook = lambda *error: print("hook", error[2].tb_frame.f_code.co_name, error[2].tb_lineno)
        fail()
"""
# An import that the program makes; `jit` outside of JAX's modules, however it is got.
JITS = """
import functools, importlib.util, inspect, sys
assert "jax" not in sys.modules
assert importlib.util.find_spec("jax").loader.is_package("jax")
import jax
from jax import jit
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("hlo_dispatch")]
assert jax.__loader__ is jax.__spec__.loader and not type(jax.__loader__).__module__.startswith("hlo_dispatch")
assert inspect.getsource(jax) and jit is jax.jit and jit.__name__ == "jit"
assert "hlo_dispatch.freezing.callable" not in sys.modules

@jax.jit
def once(x): return x + 1

@functools.partial(jax.jit, static_argnums=1)
def scaled(x, n): return x * n

@jit
def twice(x): return x + x

@jax.jit(static_argnames="n")
def named(x, *, n): return x + n

kinds = {type(function).__name__ for function in (once, scaled, twice, named)}
print(kinds, once(1.0), scaled(2.0, 3), twice(2.0), named(1.0, n=3))
import hlo_dispatch
print(hlo_dispatch.installed())
"""


def run(
    folder: Path, *words: str, python: bool = False, given: str | None = None, **environment: str
) -> tuple[int, str, str]:
    command = [sys.executable] if python else [sys.executable, "-c", COMMAND, "run"]
    done = subprocess.run(
        [*command, *words],
        cwd=folder,
        env=clean_environment() | environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    (made / "package").mkdir()
    for name in ("program.py", "package/inner.py", "package/__main__.py"):
        (made / name).write_text(PROGRAM)
    (made / "wrong.py").write_text("x = 1\ndef f(:\n")
    (made / "jits.py").write_text(JITS)
    return made


@pytest.mark.any_processor
@pytest.mark.parametrize(
    "words",
    [
        "program.py",
        "./program.py -x --y z",
        "program.py fail",
        "program.py exit",
        "program.py sentence",
        "program.py interrupt",
        "program.py hook",
        "wrong.py",
        "package",
        "-m package.inner fail",
        "-m package a",
    ],
)
def test_it_is_what_python_does(folder: Path, words: str) -> None:
    assert run(folder, *words.split()) == run(folder, *words.split(), python=True)


@pytest.mark.any_processor
def test_standard_input_and_a_safe_path(folder: Path) -> None:
    program = "import sys; print(sys.argv, sys.path[0], '__file__' in globals())"
    assert run(folder, "-", "x", given=program) == run(folder, "-", "x", given=program, python=True)
    # Which Python finds in the folder all the same.
    safe = {"PYTHONSAFEPATH": "1"}
    status, output, _ = run(folder, "package", **safe)
    assert (status, output) == run(folder, "package", python=True, **safe)[:2]


@pytest.mark.any_processor
def test_what_cannot_be_run(folder: Path) -> None:
    for words, sentence in {"nothing.py": "can't open file", "": "takes a program", "--fast x.py": "no option"}.items():
        status, output, errors = run(folder, *words.split())
        assert (status, output) == (2, "")
        assert sentence in errors
        assert len(errors.splitlines()) == 1
    status, _, errors = run(folder, "program.py", HLO_DISPATCH_FREEZE="perhaps")
    assert status == 2
    assert "perhaps" in errors
    assert "Usage" in run(folder, "--help")[1]


@pytest.mark.any_processor
def test_jit_is_ours_outside_of_jax(folder: Path) -> None:
    status, output, errors = run(folder, "jits.py")
    assert status == 0, errors
    assert output.splitlines() == ["{'JittedFunction'} 2.0 6.0 4.0 4.0", "True"]
