"""Measurement store: one SQLite database in the user's cache directory, shared by all processes.

Every process may read and write at any moment, and may be killed at any moment. A file that is damaged, or of another
program or version, is renamed and replaced by a new one. Where the directory is not writable, measurements last as long
as their process: the store never stops a compile.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import platformdirs

from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.process.lock_file import open_lock
from hlo_dispatch.selection.context import Context
from hlo_dispatch.selection.measurements import Measurement

DIRECTORY_VARIABLE = "HLO_DISPATCH_CACHE_DIR"
FILE = "measurements.sqlite3"
# "hlod": SQLite's application id.
_APPLICATION = 0x686C6F64
_VERSION = 1
_FORMAT = "hlo-dispatch measurements 1"
# Another process may be writing; it is never writing for long.
_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS contexts (fingerprint TEXT PRIMARY KEY, description TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measurements (
    context TEXT NOT NULL, region TEXT NOT NULL, thorough INTEGER NOT NULL, measured TEXT NOT NULL,
    written REAL NOT NULL, PRIMARY KEY (context, region)
) WITHOUT ROWID;
"""
_logger = logging.getLogger("hlo_dispatch")
_T = TypeVar("_T")
_D = TypeVar("_D")


class StoreError(HloDispatchError):
    """A file of exported measurements is invalid."""


@dataclass(frozen=True)
class Entry:
    """One stored measurement."""

    context: str
    region: str
    measured: Measurement
    written: float
    """Seconds since 1970."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the stored names, ready for JSON."""
        return {**vars(self), "measured": self.measured.to_dict()}


def cache_directory() -> Path:
    """The store's directory: `HLO_DISPATCH_CACHE_DIR`, or the user's cache directory."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return Path(named).expanduser().absolute() if named else Path(platformdirs.user_cache_dir("hlo-dispatch"))


class Store:
    """The measurement store in one directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory if directory is not None else cache_directory()
        self._has_warned = False
        self._problem = ""
        """The latest error of writing the database."""

    @property
    def path(self) -> Path:
        """The database's file."""
        return self.directory / FILE

    # --- for compiles -----------------------------------------------------------------------------

    def known(self, context: Context) -> dict[str, Measurement]:
        """All measurements of a context, by region digest."""
        rows = self._read(lambda database: _select(database, context.fingerprint))
        return {entry.region: entry.measured for entry in _readable(rows)}

    def get(self, context: Context, region: str) -> Measurement | None:
        """One region's measurement on disk."""
        rows = self._read(lambda database: _select(database, context.fingerprint, region))
        return next((entry.measured for entry in _readable(rows)), None)

    def put(self, context: Context, region: str, measured: Measurement) -> None:
        """Store a measurement; a quick one does not replace a thorough one, and a provisional one replaces none."""
        self._run(lambda database: _insert(database, context, {region: (measured, time.time())}), None)

    # --- for the command line ---------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All stored measurements."""
        return list(_readable(self._read(_select)))

    def contexts(self) -> dict[str, dict[str, Any]]:
        """Every context's description, by fingerprint."""
        rows = self._read(lambda database: database.execute("SELECT * FROM contexts").fetchall())
        return {fingerprint: json.loads(description) for fingerprint, description in rows}

    def export(self) -> str:
        """All stored measurements as JSON text for `load`."""
        entries = [entry.to_dict() for entry in self.entries()]
        return json.dumps({"format": _FORMAT, "contexts": self.contexts(), "entries": entries}, indent=1) + "\n"

    def load(self, text: str) -> int:
        """Add exported measurements; returns the number of new or better ones.

        Raises:
            StoreError: the text is not such an export; nothing was added.
        """
        contexts, entries = _parsed(text)

        def add(database: sqlite3.Connection) -> int:
            before = database.total_changes
            for fingerprint, values in entries.items():
                _insert(database, contexts[fingerprint], values)
            return database.total_changes - before - len(entries)

        return max(0, self._run(add, 0))

    def remove(self, *, context: str | None = None, other_than: str | None = None, older_than: float = 0.0) -> int:
        """Delete measurements; returns their number.

        Args:
            context: only those of this context.
            other_than: only those of other contexts.
            older_than: only those written before this time (seconds since 1970).
        """
        conditions = ["1"]
        values: list[str | float] = []
        for condition, value in (("context = ?", context), ("context <> ?", other_than), ("written < ?", older_than)):
            if value:
                conditions.append(condition)
                values.append(value)

        def delete(database: sqlite3.Connection) -> int:
            where = " AND ".join(conditions)
            count = database.execute(f"DELETE FROM measurements WHERE {where}", values).rowcount
            database.execute("DELETE FROM contexts WHERE fingerprint NOT IN (SELECT context FROM measurements)")
            return count

        return self._run(delete, 0)

    def problem(self) -> str:
        """The error of writing here, or empty; creates the directory and the file."""
        try:
            with self._database() as database:
                # Needs space on the disk, as a measurement does, and changes nothing.
                database.execute(f"PRAGMA user_version={_VERSION}")
        except (sqlite3.Error, OSError, _Foreign) as problem:
            return str(problem)
        return ""

    # --- the file ---------------------------------------------------------------------------------

    def _read(self, action: Callable[[sqlite3.Connection], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        """Read rows, also from a read-only volume, such as one with a shipped store."""
        rows = self._run(action, None, is_silent=True)
        if rows is not None:
            return rows
        try:
            database = sqlite3.connect(f"{self.path.as_uri()}?mode=ro&immutable=1", uri=True)
            try:
                return action(database)
            finally:
                database.close()
        except sqlite3.Error:
            # The write error is the cause: a full disk leaves a file without tables.
            self._warn_unusable(self._problem)
            return []

    def _run(self, action: Callable[[sqlite3.Connection], _T], otherwise: _D, *, is_silent: bool = False) -> _T | _D:
        """Run an action in one transaction; renames an invalid database first."""
        for attempt in range(2):
            try:
                with self._database() as database:
                    return action(database)
            except (sqlite3.OperationalError, OSError) as problem:
                self._problem = str(problem)
                if not is_silent:
                    self._warn_unusable(self._problem)
                return otherwise
            except (sqlite3.DatabaseError, _Foreign) as problem:
                if attempt:
                    self._warn_unusable(str(problem))
                    return otherwise
                self._set_aside(str(problem))
        return otherwise

    @contextlib.contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        self.directory.mkdir(parents=True, exist_ok=True)
        # A new connection for each action: actions come from any thread, before or after a fork.
        database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare(database)
            # A compile does not wait for a busy disk: killed processes damage nothing either way, and after a crash of
            # the machine in the middle of a write, a damaged store is renamed.
            database.execute("PRAGMA synchronous=OFF")
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                # SQLite has rolled back by itself where the disk is full.
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
        finally:
            database.close()

    def _prepare(self, database: sqlite3.Connection) -> None:
        application = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if (application, version) == (_APPLICATION, _VERSION):
            return _leave_shared_memory(database)
        is_empty = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application or version or not is_empty:
            if application == _APPLICATION and version == 0:
                return self._create(database)
            raise _Foreign(f"it is not a store of this version (application {application:#x}, version {version})")
        return self._create(database)

    def _create(self, database: sqlite3.Connection) -> None:
        # Processes that start together all come here: each statement is idempotent.
        with self._locked():
            database.execute(f"PRAGMA application_id={_APPLICATION}")
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version={_VERSION}")

    def _set_aside(self, problem: str) -> None:
        with self._locked():
            if self._is_sound():
                return  # another process has replaced it already
            stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            for suffix in ("", "-wal", "-shm"):
                file = self.path.with_name(self.path.name + suffix)
                with contextlib.suppress(FileNotFoundError):
                    os.replace(file, file.with_name(f"{FILE}.broken-{stamp}{suffix}"))
        kept = self.path.with_name(f"{FILE}.broken-{stamp}")
        self._warn(f"could not be read ({problem}); it was set aside as {kept.name} and begun anew")

    def _is_sound(self) -> bool:
        try:
            database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
            try:
                application = database.execute("PRAGMA application_id").fetchone()[0]
                version = database.execute("PRAGMA user_version").fetchone()[0]
                checked = database.execute("PRAGMA quick_check").fetchone()[0]
                return (application, version, checked) == (_APPLICATION, _VERSION, "ok")
            finally:
                database.close()
        except sqlite3.Error:
            return False

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """Lock against other processes that create or rename the database; a dead process's lock is released."""
        descriptor = open_lock(self.directory / "store.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _warn_unusable(self, problem: str) -> None:
        self._warn(f"cannot be used ({problem}); what is measured is forgotten when the process ends")

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _logger.warning("the store of measurements %s %s", self.path, what)


class _Foreign(Exception):
    """The database belongs to another program or version."""


def _leave_shared_memory(database: sqlite3.Connection) -> None:
    """Migrate a database of an earlier version from the write-ahead log to a rollback journal, SQLite's default.

    The write-ahead log needs memory that all its processes share, which processes of two machines on one NFS home do
    not have. Nor is it faster here, where every action opens the database anew: 0.7 to 1.2 ms for a write, 0.6 to
    0.9 ms without it.
    """
    if database.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        # While another process has it open it stays as it is.
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("PRAGMA journal_mode=DELETE")


def _select(database: sqlite3.Connection, context: str = "", region: str = "") -> list[tuple[Any, ...]]:
    conditions = [f"{name} = ?" for name, value in (("context", context), ("region", region)) if value]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT context, region, measured, written FROM measurements {where} ORDER BY context, region"
    return database.execute(query, [value for value in (context, region) if value]).fetchall()


def _readable(rows: Sequence[tuple[Any, ...]]) -> Iterator[Entry]:
    for context, region, text, written in rows:
        try:
            yield Entry(context, region, Measurement.from_dict(json.loads(text)), float(written))
        except ValueError:
            _logger.debug("the store has an entry of %s that is none", region)


def _insert(database: sqlite3.Connection, context: Context, values: Mapping[str, tuple[Measurement, float]]) -> None:
    database.execute(
        "INSERT OR REPLACE INTO contexts VALUES (?, ?)", (context.fingerprint, json.dumps(asdict(context)))
    )
    for region, (measured, written) in values.items():
        text = json.dumps(measured.to_dict())
        database.execute(
            "INSERT INTO measurements VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET thorough = excluded.thorough, "
            "measured = excluded.measured, written = excluded.written WHERE excluded.thorough >= thorough",
            (context.fingerprint, region, _rank(measured), text, written),
        )


def _rank(measured: Measurement) -> int:
    """Rank of a measurement, the column `thorough`: a lower one does not replace a higher one."""
    # What never ended is not to be tried again, whatever a busy machine said of it before.
    if measured.provisional or (measured.timed_out_after > 0 and not measured.thorough):
        return -1
    return -2 if measured.failed_attempts and not measured.thorough else int(measured.thorough)


def _parsed(text: str) -> tuple[dict[str, Context], dict[str, dict[str, tuple[Measurement, float]]]]:
    """Parse an export: its contexts and, by context and region, its measurements."""
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise StoreError(f"these measurements are in the format {document['format']!r}, not {_FORMAT!r}")
        contexts = {name: _context(values) for name, values in document["contexts"].items()}
        entries: dict[str, dict[str, tuple[Measurement, float]]] = {}
        for entry in document["entries"]:
            if contexts[entry["context"]].fingerprint != entry["context"]:
                raise ValueError(f"the context {entry['context']} does not have this fingerprint")
            values = Measurement.from_dict(entry["measured"]), float(entry["written"])
            entries.setdefault(entry["context"], {})[str(entry["region"])] = values
    except StoreError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"this is not a file of exported measurements: {error!r}") from None
    return contexts, entries


def _context(values: Mapping[str, Any]) -> Context:
    lists = {name: tuple(cast("list[Any]", value)) for name, value in values.items() if isinstance(value, list)}
    fields: dict[str, Any] = {**values, **lists}
    return Context(**fields)
