"""The rules of the house that a reader relies on: who may import whom, how long a file is, what an import does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dispatch" / "hlo_dispatch"
FILES = sorted(PACKAGE.rglob("*.py"))

# Rooms in the order in which imports may run: a room may import those on its left, and itself.
ORDER = (
    "errors switches report binding kept_memory libraries kernels hlo pattern own_kernels registration match "
    "policy rewriting measuring api module_files collecting present run_report record grounds cache_key replicas "
    "plugin door lowering explaining tuning program_tuning patterns_view explain_view explain_page profile_view "
    "tune_view cache_view doctor demo bench bench_command profile_command usage cli"
).split()
JAX = {"registration", "cache_key", "replicas", "plugin", "lowering", "explaining", "demo", "doctor", "bench"}
MEASURES = PACKAGE / "policy" / "executable.py"
LONGEST = 400


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Dotted names of every module the file imports, anywhere in it, those for type checkers included."""
    found = set()
    package = ["hlo_dispatch", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "hlo_dispatch" else {module}
    return found


@pytest.mark.parametrize("path", [f for f in FILES if room(f) != "__init__"], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    own = ORDER.index(room(path))
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "hlo_dispatch" and rest and not rest.startswith("_"):
            assert ORDER.index(rest.split(".")[0]) <= own, f"{path.name} imports {name}"
        if top == "jax":
            assert room(path) in JAX or path == MEASURES, f"{path.name} imports {name}"
        if top == "jaxlib":
            assert path in (PACKAGE / "hlo" / "text.py", PACKAGE / "doctor.py"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_importing_loads_nothing() -> None:
    code = """
import sys, hlo_dispatch
loaded = {name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "numpy", "networkx", "google"}
libraries = [line.split()[-1] for line in open("/proc/self/maps") if "libdnnl" in line or "libmkl" in line]
sys.exit(f"loaded: {loaded}, {libraries}" if loaded or libraries else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
