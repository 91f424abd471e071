"""Runs the installed command, as a person would, on modules that this jaxlib optimized."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from environment import clean_environment
from warm import Warm

COMMAND = Path(sys.executable).with_name("hlo-dispatch")
Run = Callable[..., subprocess.CompletedProcess]
# What is read when the command is run, not when something is imported.
READ_LATE = {"COLUMNS", "HLO_DISPATCH"} | {
    f"HLO_DISPATCH_{name}"
    for name in ("CACHE_DIR", "MAX_CPU_ISA", "MEASURE_SECONDS", "MKL_LIBRARY", "ONEDNN_LIBRARY", "POLICY")
}


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs the command without importing everything each time."""
    server = Warm(tmp_path_factory.mktemp("warm"), clean_environment())
    yield server
    server.close()


@pytest.fixture
def run(tmp_path: Path, warm: Warm) -> Run:
    """Run `hlo-dispatch` with arguments in an empty directory; `input` is bytes, `env` adds variables (None: none)."""

    def call(
        *arguments: str | Path, input: bytes = b"", env: dict[str, str | None] | None = None, timeout: float = 300
    ):
        wanted = clean_environment() | {"COLUMNS": "100", "JAX_PLATFORMS": "cpu"} | (env or {})
        given = {name: value for name, value in wanted.items() if value is not None}
        words = [str(word) for word in arguments]
        if (env or {}).keys() <= READ_LATE:
            done = warm.run(words, input=input, environment=given, directory=tmp_path, timeout=timeout)
        else:
            done = subprocess.run(
                [COMMAND, *words],
                input=input,
                env=given,
                cwd=tmp_path,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    return call


@pytest.fixture(scope="session")
def optimized():
    """A convolution with bias and relu, as stock XLA leaves it: (text, serialized module)."""
    import jax
    import numpy as np

    def conv_bias_relu(x, w, b):
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y + b)

    shapes = ((1, 16, 16, 8), (3, 3, 8, 16), (16,))
    compiled = jax.jit(conv_bias_relu).lower(*(np.zeros(shape, "float32") for shape in shapes)).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    return compiled.as_text(), module.as_serialized_hlo_module_proto()


@pytest.fixture
def text_file(tmp_path: Path, optimized) -> Path:
    """The optimized module as HLO text in a file."""
    path = tmp_path / "in.hlo"
    path.write_text(optimized[0])
    return path


@pytest.fixture
def proto_file(tmp_path: Path, optimized) -> Path:
    """The optimized module as a serialized HloModuleProto in a file."""
    path = tmp_path / "in.pb"
    path.write_bytes(optimized[1])
    return path


@pytest.fixture
def one_line() -> Callable[[subprocess.CompletedProcess], str]:
    """Check that a run failed with exit status 2 and a single line on standard error; that line."""

    def check(done: subprocess.CompletedProcess) -> str:
        assert done.returncode == 2, done.stderr.decode()
        assert done.stdout == b""
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("hlo-dispatch: ")
        return line

    return check
