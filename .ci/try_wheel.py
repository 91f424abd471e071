"""What an installed wheel must do, tried with the Python of its environment in an empty folder.

python .ci/try_wheel.py README.md [--host]

With --host: JAX on the PJRT plugin, whose runtime has been installed beside it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

COMMAND = Path(sys.executable).with_name("hlo-dispatch")
BEFORE = """
import jax, jax.numpy as jnp
def f(x):
    return jnp.tanh(x @ x)
x = jnp.ones((256, 256))
"""
SAVE = """
import numpy, hlo_dispatch
weights = {"w": numpy.ones((256, 128), "float32"), "b": numpy.arange(128, dtype="float32")}
fast = hlo_dispatch.freeze(lambda p, x: jax.nn.relu(x @ p["w"] + p["b"]), weights)
numpy.save("result.npy", fast(numpy.ones((32, 256), "float32")))
fast.save("program.frozen")
"""
LOAD = """
import importlib.util, numpy, hlo_dispatch
assert not any(map(importlib.util.find_spec, ("flax", "keras", "torch", "pytest"))), "the environment is not empty"
fast = hlo_dispatch.load("program.frozen")
assert numpy.array_equal(fast(numpy.ones((32, 256), "float32")), numpy.load("result.npy"))
"""
HOST = """
#include <stdio.h>
#include "hlo_dispatch/kernels.h"
int main(void) {
  hlo_dispatch_loaded loaded;
  hlo_dispatch_error* error = hlo_dispatch_load_onednn(NULL, 0, &loaded);
  if (error != NULL) {
    fprintf(stderr, "%s\\n", hlo_dispatch_error_message(error));
    return 1;
  }
  printf("%s, oneDNN %s\\n", hlo_dispatch_version(), loaded.version);
  return hlo_dispatch_interface() != HLO_DISPATCH_INTERFACE;
}
"""


def run(*words: object, **variables: str) -> str:
    """What a command prints; nothing of this process's environment but where programs and the home folder are."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = kept | {"JAX_PLATFORMS": "cpu", "HLO_DISPATCH_CACHE_DIR": str(Path.cwd() / "cache")} | variables
    done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))[:300]}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def python(code: str, **variables: str) -> str:
    """What a program prints that has jax, a function `f` and its argument `x`."""
    return run(sys.executable, "-c", BEFORE + code, **variables)


def doctor() -> str:
    """Everything is there, and every path that it names exists."""
    run(COMMAND, "doctor")
    for name, path in paths().items():
        if not Path(path).exists():
            sys.exit(f"doctor --paths: {name} is {path!r}, which is not there")
    return ""


def paths() -> dict[str, str]:
    """What `hlo-dispatch doctor --paths` says."""
    return dict(line.split("=", 1) for line in run(COMMAND, "doctor", "--paths").splitlines())


def readme(page: Path) -> Callable[[], str]:
    """The README's code, from top to bottom in one program."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return lambda: python("\n".join(blocks)) and ""


def plugin_entry_point() -> str:
    """JAX finds the pass by its entry point."""
    return python("jax.devices(); import hlo_dispatch; assert hlo_dispatch.installed()", HLO_DISPATCH="1")


def stablehlo() -> str:
    """A program of JAX's as text, rewritten and compiled by the command."""
    python('open("program.mlir", "w").write(jax.jit(f).lower(x).as_text())')
    text = run(COMMAND, "rewrite", "program.mlir", "--policy", "always")
    if 'custom_call_target="hlo_dispatch.' not in text:
        sys.exit(f"rewrite program.mlir dispatched nothing:\n{text}")
    run(COMMAND, "rewrite", "program.mlir", "--policy", "always", "--compile", "-o", "program.xla")
    return f"{Path('program.xla').stat().st_size} bytes"


def host() -> str:
    """A program in C against the header and the library, which finds oneDNN by itself."""
    Path("host.c").write_text(HOST)
    there = paths()
    library = Path(there["library"])
    options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-I", there["include"], f"-Wl,-rpath,{library.parent}"]
    run(os.environ.get("CC", "gcc"), *options, "host.c", library, "-o", "host")
    return run(Path("host").resolve())


PLUGIN = """
from hlo_dispatch.kernels import plugin_path
from hlo_dispatch.pjrt_plugin.c_client import CClient, PjrtError
try:
    CClient(plugin_path())
except PjrtError as error:
    assert "pip install fastatomstruct-xla-cpu" in str(error), error
else:
    raise SystemExit("the PJRT plugin has found a runtime where none is installed")
"""


def plugin() -> str:
    """The PJRT plugin is there, and says what it needs."""
    return python(PLUGIN)


ON_PLUGIN = """
import ctypes, sys, numpy
y = numpy.asarray(jax.jit(f)(x / 256))
assert numpy.allclose(y, numpy.tanh(1 / 256)), y
assert "hlo-dispatch" in jax.devices()[0].client.platform_version
library = ctypes.CDLL(sys.argv[1])
library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
assert library.hlo_dispatch_pjrt_count(b"dispatched") >= 1, library.hlo_dispatch_pjrt_failure()
"""


def on_plugin() -> str:
    """JAX on the PJRT plugin, which finds runtime and interpreter in its own environment."""
    path = paths()["pjrt_plugin"]
    here = {"JAX_PLATFORMS": "hd", "PJRT_NAMES_AND_LIBRARY_PATHS": f"hd:{path}", "HLO_DISPATCH_POLICY": "always"}
    return run(sys.executable, "-c", BEFORE + ON_PLUGIN, path, **here)


def saved() -> str:
    """A frozen program, saved by one process and loaded by another, with none of the packages that models come from."""
    python(SAVE)
    return python(LOAD)


def main() -> None:
    """Try everything; the first thing that fails ends it with what was said."""
    page = Path(sys.argv[1]).resolve()
    steps = {
        "doctor": doctor,
        "README": readme(page),
        "HLO_DISPATCH=1": plugin_entry_point,
        "StableHLO": stablehlo,
        "C": host,
        "PJRT": plugin,
        "saved program": saved,
    }
    if "--host" in sys.argv:
        steps = {"JAX on the plugin": on_plugin}
    with tempfile.TemporaryDirectory(prefix="hlo_dispatch_try_") as folder:
        os.chdir(folder)
        for name, step in steps.items():
            start = time.perf_counter()
            said = step().strip()
            print(f"   {name}: {time.perf_counter() - start:.1f} s {said}".rstrip(), flush=True)
        os.chdir(page.parent)


if __name__ == "__main__":
    main()
