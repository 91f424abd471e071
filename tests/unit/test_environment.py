"""What processes that tests start inherit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from environment import clean_environment, import_path

PACKAGE = """
import os, sys
import only_here
print(only_here.__file__)
"""


def test_a_relative_path_is_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkout" / "only_here.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "checkout")
    for more in ({}, {"PYTHONPATH": str(tmp_path / "elsewhere")}):
        done = subprocess.run(
            [sys.executable, "-c", PACKAGE], env=clean_environment(**more), cwd=tmp_path / "elsewhere",
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == str(tmp_path / "checkout" / "only_here.py")


def test_what_a_test_adds_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("/second", "/first")))
    assert import_path("/first").split(os.pathsep)[:2] == ["/first", "/second"]
    monkeypatch.delenv("PYTHONPATH")
    assert clean_environment(PYTHONPATH="/first")["PYTHONPATH"].split(os.pathsep)[0] == "/first"


def test_a_checkout_on_the_path_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pytest's own setting `pythonpath` puts it there, which no variable says."""
    import hlo_dispatch

    folder = str(Path(hlo_dispatch.__file__).parents[1])
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    assert folder in clean_environment()["PYTHONPATH"].split(os.pathsep)
