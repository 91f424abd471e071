"""Architecture rules: import order, file size, what importing loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dispatch" / "hlo_dispatch"
# What `rglob` makes of a link to a folder depends on Python's version.
FILES = sorted({*PACKAGE.rglob("*.py"), *(PACKAGE / "bench").rglob("*.py")})

# Packages in the order in which imports may run: a package may import those on its left, and itself.
ORDER = (
    "errors report process ir analysis pattern match vendor kernels selection autotune passes pipeline driver api "
    "pjrt_plugin jax_plugin freezing automatic_freezing demo bench cli"
).split()
PUBLIC = {"__init__", "api", "errors", "kernels", "pipeline"}
"""The only files that are in no package."""
JAX = {"jax_plugin", "freezing", "automatic_freezing", "demo", "bench"}
"""Packages that know JAX; besides, the two files where others meet it."""
MEETS_JAX = {"vendor/registration.py", "autotune/run/executable.py", "cli/doctor.py"}
MEETS_JAXLIB = {"ir/text.py", "cli/doctor.py"}
LONGEST = 400


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def package_of(path: Path) -> str:
    return place(path).split("/")[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Dotted names of every module the file imports, anywhere in it, those for type checkers included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}, line {node.lineno}: a relative import does not say which package"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module == "hlo_dispatch" else {node.module or ""}
    return found


def test_only_public_modules_are_in_no_package() -> None:
    assert {package_of(path) for path in FILES if path.parent == PACKAGE} == PUBLIC
    assert {package_of(path) for path in FILES} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("path", [f for f in FILES if package_of(f) != "__init__"], ids=place)
def test_imports_run_one_way(path: Path) -> None:
    own = ORDER.index(package_of(path))
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "hlo_dispatch" and rest and not rest.startswith("_"):
            assert ORDER.index(rest.split(".")[0]) <= own, f"{place(path)} imports {name}"
        if top == "jax":
            assert package_of(path) in JAX or place(path) in MEETS_JAX, f"{place(path)} imports {name}"
        if top == "jaxlib":
            assert place(path) in MEETS_JAXLIB, f"{place(path)} imports {name}"


@pytest.mark.parametrize("path", [*FILES, *sorted(Path(__file__).parent.rglob("*.py"))], ids=lambda path: path.name)
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_importing_loads_nothing() -> None:
    code = """
import sys, hlo_dispatch
loaded = {name.split(".")[0] for name in sys.modules} & {"jax", "jaxlib", "numpy", "networkx", "google", "rich"}
libraries = [line.split()[-1] for line in open("/proc/self/maps") if "libdnnl" in line or "libmkl" in line]
sys.exit(f"loaded: {loaded}, {libraries}" if loaded or libraries else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_reports_load_no_terminal() -> None:
    """Until one is printed."""
    code = """
import sys, hlo_dispatch
hlo_dispatch.Report("module"), hlo_dispatch.Region
assert "rich" not in sys.modules
assert "module" in str(hlo_dispatch.Report("module"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads a name knows which class it is."""
    producers: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                producers.setdefault(node.name, set()).add(f"{place(path)}:{node.lineno}")
    assert not {name: sorted(found) for name, found in producers.items() if len(found) > 1}
