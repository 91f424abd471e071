"""Measurement store: persistent, shared by many processes, and rebuilt when it is damaged."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from environment import clean_environment
from hlo_dispatch.autotune.store import Store, StoreError
from hlo_dispatch.selection import context
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements, Measurement

pytestmark = pytest.mark.any_processor

WON = Measurement(
    "whole", {STOCK: 2e-3, "whole": 1e-3}, 1e-3, 1e-5, formula="relu(x @ w)", shape="f32[8,8]", kernel="k"
)
LOST = Measurement(STOCK, {STOCK: 1e-3, "whole": 2e-3})
THOROUGH = replace(WON, thorough=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_what_is_put_is_known_elsewhere(store: Store) -> None:
    here = this_context()
    store.put(here, "a", WON)
    store.put(here, "b", LOST)
    again = Store(store.directory)
    assert again.known(here) == {"a": WON, "b": LOST}
    assert again.get(here, "a") == WON
    assert again.get(here, "c") is None
    assert again.known(replace(here, threads=here.threads + 1)) == {}, "another machine"


def test_a_thorough_measurement_stays(store: Store) -> None:
    here = this_context()
    store.put(here, "a", WON)
    store.put(here, "a", LOST)
    assert store.get(here, "a") == LOST, "newer, and as thorough"
    store.put(here, "a", THOROUGH)
    store.put(here, "a", LOST)
    assert store.get(here, "a") == THOROUGH


@pytest.mark.parametrize(
    "change",
    [{"cpu": "x"}, {"features": ("avx2",)}, {"threads": 99}, {"libraries": ("oneDNN 1.0 seq",)}, {"jaxlib": "0"},
     {"abi": 99}, {"settings": ("OMP_NUM_THREADS=1",)}],
)  # fmt: skip
def test_everything_that_matters_is_in_the_key(change: dict) -> None:
    here = this_context()
    assert replace(here, **change).fingerprint != here.fingerprint
    assert replace(here).fingerprint == here.fingerprint


def test_the_version_of_scipy_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its LAPACK is what stock XLA calls, and with it what every kernel for linear algebra is measured against."""
    before = this_context()
    real = context.metadata.version
    monkeypatch.setattr(context.metadata, "version", lambda name: "0.0.1" if name == "scipy" else real(name))
    monkeypatch.setenv("ONEDNN_HINT_FOR_THIS_TEST", "1")  # what was found before is kept for equal settings
    after = this_context()
    assert "SciPy 0.0.1" in after.libraries
    assert replace(after, settings=before.settings).fingerprint != before.fingerprint


def test_settings_of_the_libraries_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = this_context().fingerprint
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    assert this_context().fingerprint != before


# --- files that are not ours -------------------------------------------------------------------------------


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE somebody (elses TEXT)")


def newer(path: Path) -> None:
    Store(path.parent).put(this_context(), "a", WON)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version=99")


def damaged(path: Path) -> None:
    store = Store(path.parent)
    for number in range(200):
        store.put(this_context(), f"region {number}", WON)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "make", [lambda path: path.write_bytes(b"not a database at all" * 100), foreign, newer, damaged],
    ids=["no database", "somebody else's", "newer", "damaged"],
)  # fmt: skip
def test_a_store_that_is_not_ours_is_set_aside(store: Store, make, caplog: pytest.LogCaptureFixture) -> None:
    store.directory.mkdir()
    make(store.path)
    wrong = store.path.read_bytes()
    fresh = Store(store.directory)
    fresh.put(this_context(), "new", WON)
    assert fresh.known(this_context()) == {"new": WON}
    (kept,) = [f for f in store.directory.glob("*.broken-*") if not f.name.endswith(("-wal", "-shm"))]
    assert kept.read_bytes() == wrong
    assert caplog.text.count("set aside") == 1


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store")
    store.put(this_context(), "a", WON)
    assert store.known(this_context()) == {}
    assert store.entries() == []
    assert caplog.text.count("cannot be used") == 1


def test_a_full_disk_is_called_one(store: Store, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    """Not by what is missing in the file that it left behind."""
    connect = sqlite3.connect

    def full(*arguments, **options) -> sqlite3.Connection:
        database = connect(*arguments, **options)
        database.execute("PRAGMA max_page_count=1")
        return database

    monkeypatch.setattr("hlo_dispatch.autotune.store.sqlite3.connect", full)
    assert store.known(this_context()) == {}
    store.put(this_context(), "a", WON)
    assert "full" in store.problem()
    monkeypatch.undo()
    assert len(caplog.records) == 1
    assert "database or disk is full" in caplog.text
    assert "no such table" not in caplog.text
    store.put(this_context(), "a", WON)
    assert store.known(this_context()) == {"a": WON}, "when there is room again"


def journal(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA journal_mode").fetchone()[0]


def test_no_memory_is_shared_between_processes(store: Store) -> None:
    """Two machines on one home over NFS have none: a write-ahead log would be torn."""
    store.put(this_context(), "a", WON)
    assert journal(store.path) == "delete"
    assert not list(store.directory.glob("*-shm"))


def test_a_store_of_an_earlier_version_is_taken_over(store: Store) -> None:
    store.put(this_context(), "a", WON)
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("SELECT count(*) FROM measurements").fetchall()
        begin = time.perf_counter()
        assert store.known(this_context()) == {"a": WON}, "while another process has it open"
        store.put(this_context(), "b", WON)
        assert time.perf_counter() - begin < 20, "which nobody waits for"
        assert journal(store.path) == "wal"
    assert store.known(this_context()) == {"a": WON, "b": WON}
    assert journal(store.path) == "delete"


def test_a_store_that_can_only_be_read(store: Store, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    """As one that is shipped with an image may be."""
    store.put(this_context(), "a", WON)

    connect = sqlite3.connect

    def read_only_connection(path: Path | str, **options):
        return connect(path if isinstance(path, str) else f"{path.as_uri()}?mode=ro", **options | {"uri": True})

    monkeypatch.setattr(sqlite3, "connect", read_only_connection)
    read_only = Store(store.directory)
    assert read_only.known(this_context()) == {"a": WON}
    assert caplog.text == ""
    read_only.put(this_context(), "b", WON)
    assert "cannot be used" in caplog.text
    assert read_only.known(this_context()) == {"a": WON}


def test_an_entry_that_is_none_is_passed_over(store: Store) -> None:
    store.put(this_context(), "a", WON)
    store.put(this_context(), "b", WON)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as database:
        database.execute("UPDATE measurements SET measured = '{\"chosen\": \"whole\"}' WHERE region = 'b'")
    assert store.known(this_context()) == {"a": WON}


# --- taken elsewhere, forgotten ----------------------------------------------------------------------------


def test_export_and_import(store: Store, tmp_path: Path) -> None:
    store.put(this_context(), "a", THOROUGH)
    store.put(this_context(), "b", LOST)
    other = Store(tmp_path / "other")
    other.put(this_context(), "a", LOST)
    assert other.load(store.export()) == 2
    assert other.known(this_context()) == {"a": THOROUGH, "b": LOST}


def edited(text: str, edit) -> str:
    document = json.loads(text)
    edit(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.pop("entries"),
        lambda d: d.update(format="something else"),
        lambda d: d["entries"][0].update(context="unknown"),
        lambda d: d["entries"][0]["measured"].update(chosen="unmeasured"),
        lambda d: d["entries"][0]["measured"].update(seconds="none"),
        lambda d: next(iter(d["contexts"].values())).update(threads=77),
    ],
)
def test_what_is_no_export_is_not_imported(store: Store, tmp_path: Path, edit) -> None:
    store.put(this_context(), "a", WON)
    other = Store(tmp_path / "other")
    for text in ("", "[]", "{}", edited(store.export(), edit)):
        with pytest.raises(StoreError):
            other.load(text)
    assert other.entries() == []


def test_removing(store: Store) -> None:
    here = this_context()
    elsewhere = replace(here, cpu="another")
    store.put(here, "a", WON)
    store.put(elsewhere, "a", WON)
    assert store.remove(older_than=time.time() - 60) == 0
    assert store.remove(other_than=here.fingerprint) == 1
    assert store.known(elsewhere) == {}
    assert list(store.contexts()) == [here.fingerprint]
    assert store.remove(older_than=time.time() + 1) == 1


# --- many processes ----------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.measurements import Measurement
from hlo_dispatch.autotune.store import Store
store, here = Store(Path(sys.argv[1])), this_context()
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    store.put(here, f"region {number}", Measurement("stock", {"stock": 1.0, "whole": 2.0}, formula=sys.argv[3]))
"""


def writer(store: Store, count: int, name: str) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(store.directory), str(count), name]
    return subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True)


def test_eight_processes_begin_and_fill_one_store(store: Store) -> None:
    writers = [writer(store, 60, str(number)) for number in range(8)]
    for process in writers:
        process.communicate(timeout=120)
        assert process.returncode == 0
    entries = store.entries()
    assert sorted(entry.region for entry in entries) == sorted(f"region {number}" for number in range(60))
    assert not list(store.directory.glob("*.broken-*"))


def test_killed_in_the_middle(store: Store) -> None:
    """Whatever the moment, what is left is a store that works."""
    chance = random.Random(5)
    for turn in range(5):
        process = writer(store, 100_000, str(turn))
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store.put(this_context(), f"after {turn}", WON)
        assert store.get(this_context(), f"after {turn}") == WON
    assert not list(store.directory.glob("*.broken-*"))


# --- what a process knows ----------------------------------------------------------------------------------


def test_the_fingerprint_follows_the_choices() -> None:
    knowledge = KnownMeasurements({"a": WON})
    before = knowledge.fingerprint
    knowledge.add("a", replace(WON, gain=5.0))
    assert knowledge.fingerprint == before, "the same choice"
    knowledge.add("b", LOST)
    assert knowledge.fingerprint not in (before, KnownMeasurements({"a": LOST}).fingerprint)
    assert knowledge.fingerprint == KnownMeasurements({"b": LOST, "a": WON}).fingerprint


@pytest.mark.parametrize(
    "values",
    [{}, {"chosen": "whole", "seconds": {}}, {"chosen": "stock", "seconds": {"stock": "fast"}}, {"chosen": 3},
     {"chosen": "whole", "seconds": {"whole": 1.0}, "refused": {"whole": "wrong"}}, {"colour": "red"}],
)  # fmt: skip
def test_what_is_no_measurement(values: dict) -> None:
    with pytest.raises(ValueError, match="not a measurement"):
        Measurement.from_dict(values)
