"""Lock files: in a directory that others can write to, a link to one of our files may have their name."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import pytest

from hlo_dispatch.autotune import measurement_lock
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.jax_plugin.tuning import tune_module
from hlo_dispatch.process.lock_file import LockIsSymlink, open_lock
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.measurements import STOCK, Measurement

pytestmark = pytest.mark.any_processor

PRECIOUS = "precious\n"
LOST = Measurement(STOCK, {STOCK: 1e-3, "whole": 2e-3})


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file that no lock may change."""
    file = tmp_path / "precious.txt"
    file.write_text(PRECIOUS)
    return file


def test_a_file_is_not_emptied_and_a_link_is_not_followed(tmp_path: Path, precious: Path) -> None:
    os.close(open_lock(precious))
    assert precious.read_text() == PRECIOUS
    (tmp_path / "link").symlink_to(precious)
    with pytest.raises(LockIsSymlink, match="symbolic link"):
        open_lock(tmp_path / "link")
    (tmp_path / "dangling").symlink_to(tmp_path / "made.txt")
    with pytest.raises(LockIsSymlink):
        open_lock(tmp_path / "dangling")
    assert not (tmp_path / "made.txt").exists()


def test_a_lock_locks(tmp_path: Path) -> None:
    first, second = open_lock(tmp_path / "lock"), open_lock(tmp_path / "lock")
    fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(first)
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(second)


@pytest.mark.usefixtures("_own_store", "_any_answer")
def test_measuring_goes_on_without_the_lock(
    store: Store, precious: Path, module_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.directory.mkdir()
    (store.directory / "measuring.lock").symlink_to(precious)
    with caplog.at_level(logging.WARNING, "hlo_dispatch"):
        tuned = tune_module(module_file.read_bytes(), validate_only=True)
    assert len(tuned.regions) > 1
    assert precious.read_text() == PRECIOUS
    assert caplog.text.count("measuring.lock is a symbolic link") == 1, "said once, not for each region"


@pytest.mark.usefixtures("_own_store")
def test_the_store_does_without_its_lock(store: Store, precious: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.directory.mkdir()
    (store.directory / "store.lock").symlink_to(precious)
    store.put(this_context(), "a", LOST)
    assert store.known(this_context()) == {}
    assert precious.read_text() == PRECIOUS
    assert caplog.text.count("symbolic link") == 1


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module_file: Path) -> None:
    """As a network file system may be: nobody waits for what will never be locked."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path / "store"))
    Store(tmp_path / "store").put(this_context(), "a", LOST)
    monkeypatch.setattr(measurement_lock.fcntl, "flock", refuse)
    tuned = tune_module(module_file.read_bytes(), validate_only=True, seconds=60)
    assert len(tuned.regions) > 1
