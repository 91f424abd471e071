"""Private names are not patched: a test injects a clock, a runner or a store, or patches what is public.

A private name in another module is an implementation detail: a patch of it passes whatever the code does after a
rename. Reading one is a lesser evil, and those that are left are listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

TESTS = Path(__file__).parent
# File → private names that its tests read; each could be a public one.
READ = {
    "automatic_freezing/test_lasting_site.py": {
        "_bytes",
        "_compile_for",
        "_jitted",
        "_sites",
    },
    "bench/test_bench_patterns.py": {"_loaded"},
    "freezing/test_aliases.py": {"_plain"},
    "freezing/test_frozen_building.py": {"_programs"},
    "freezing/test_frozen_diffusion.py": {"_generate"},  # of diffusers
    "freezing/test_frozen_donated.py": {"_programs"},
    "freezing/test_frozen_files.py": {"_programs"},
    "freezing/test_frozen_weights.py": {"_latest"},
    "freezing/test_signatures.py": {"_programs"},
    "kernels/test_kernel_quantized_matmul.py": {"_append"},
    "pattern/test_pattern_load.py": {"_load"},
    "pjrt/diffusion_worker.py": {"_generate"},  # of diffusers
    "pjrt/host_worker.py": {"_exit"},  # Python's
    "selection/measured_programs.py": {"_given_up", "_knowledge"},
    "selection/test_deadline.py": {"_given_up"},
    "selection/test_region.py": {"_graph"},
    "unit/test_fork_safe_lock.py": {"_exit"},  # Python's
    "unit/test_large_pages.py": {"_page_bytes", "_whole_pages"},
    "unit/test_report_text.py": {"_repr_html_"},  # IPython's name, public
    "warm_server.py": {"_exit", "_run_exitfuncs", "_shutdown"},  # Python's
}


@lru_cache(maxsize=1)
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(TESTS)): ast.parse(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}


def is_private(name: str) -> bool:
    return re.match(r"_[a-zA-Z]", name.rpartition(".")[2]) is not None


def patches(tree: ast.Module) -> Iterator[str]:
    """The private names that calls of setattr, delattr and patch.object name, or whose attributes they set."""
    for call in ast.walk(tree):
        function = call.func if isinstance(call, ast.Call) else None
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if not isinstance(call, ast.Call) or name not in ("setattr", "delattr", "patch", "object"):
            continue
        for argument in call.args[:2]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and is_private(argument.value):
                yield argument.value
            if isinstance(argument, ast.Attribute) and is_private(argument.attr):
                yield argument.attr


def test_no_private_name_is_patched() -> None:
    found = {path: names for path, tree in trees().items() if (names := sorted(patches(tree)))}
    assert found == {}


def test_private_names_that_are_read_are_listed() -> None:
    found = {
        path: names
        for path, tree in trees().items()
        if (
            names := {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and is_private(node.attr)
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            }
        )
    }
    assert found == READ


def test_what_is_a_patch() -> None:
    text = """
monkeypatch.setattr(hook, "_warn", fail)
patch.setattr("hlo_dispatch.hook._settings", 1)
monkeypatch.setattr(hook._state, "warned", 1)
setattr(hook, "public", 1)
"""
    assert list(patches(ast.parse(text))) == ["_warn", "hlo_dispatch.hook._settings", "_state"]
