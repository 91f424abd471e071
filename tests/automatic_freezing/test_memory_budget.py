"""The memory budget: the variable, the machine, control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_dispatch.automatic_freezing.memory_budget import (
    MEMORY_VARIABLE,
    MemoryBudget,
    available_bytes,
    configured_bytes,
)
from hlo_dispatch.automatic_freezing.mode import FREEZE_VARIABLE, freeze_mode
from hlo_dispatch.errors import PolicyError


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    assert available_bytes(system(tmp_path, {})) == 8 << 10


@pytest.mark.parametrize("group", ["/", "/job/step", "/of/the/host"])
def test_a_control_group_leaves_less(tmp_path: Path, group: str) -> None:
    files = {
        "proc/self/cgroup": f"0::{group}\n",
        "sys/fs/cgroup/job/memory.max": "5000\n",
        "sys/fs/cgroup/job/memory.current": "3000\n",
        "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 500\n",
        "sys/fs/cgroup/memory.max": "max\n",
    }
    assert available_bytes(system(tmp_path, files)) == (2500 if group == "/job/step" else 8 << 10)


def test_a_control_group_of_the_first_version(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "3:cpu:/\n2:memory:/docker/abc\n",
        f"{folder}/memory.limit_in_bytes": "4000",
        f"{folder}/memory.usage_in_bytes": "4500",
        f"{folder}/memory.stat": "total_inactive_file 100\n",
    }
    assert available_bytes(system(tmp_path, files)) == 0


@pytest.mark.parametrize(
    ("text", "bytes"), [("", None), ("0", 0), ("12", 12), ("2k", 2048), ("1.5M", 3 << 19), ("2 GiB", 2 << 30)]
)
def test_the_variable(text: str, bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    assert configured_bytes() == bytes


@pytest.mark.parametrize("text", ["-1", "lots", "1Q"])
def test_an_invalid_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    with pytest.raises(PolicyError, match=MEMORY_VARIABLE):
        configured_bytes()


def test_owners_share_what_was_configured() -> None:
    budget = MemoryBudget(100)
    assert budget.reserve("a", 60) == ""
    assert "40" in budget.reserve("b", 50)
    assert budget.reserve("a", 90) == "", "in place of its own"
    budget.release("a")
    assert budget.reserve("b", 100) == ""
    assert budget.bytes == 100


def test_a_quarter_of_what_is_available() -> None:
    budget = MemoryBudget(None, lambda: 400)
    assert budget.reserve("a", 100) == ""
    assert "quarter" in budget.reserve("b", 101)


def test_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, mode in {"": "auto", "Now": "now", "never": "never"}.items():
        monkeypatch.setenv(FREEZE_VARIABLE, text)
        assert freeze_mode() == mode
    monkeypatch.setenv(FREEZE_VARIABLE, "often")
    with pytest.raises(PolicyError, match="often"):
        freeze_mode()
