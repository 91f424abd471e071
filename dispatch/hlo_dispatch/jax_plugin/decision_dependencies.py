"""Decision dependencies: the measurements that a module's decisions depend on, stored for later processes.

A compile looks up the measurements of its regions and of its program. As long as none of these changes, compiling the
module again has the same result, whatever else is measured meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hlo_dispatch.autotune.store import cache_directory
from hlo_dispatch.selection.measurements import KnownMeasurements, Measurement
from hlo_dispatch.selection.strategies import verdicts

FOLDER = "modules"
_MOST_FILES = 5000
"""Maximum number of files; the oldest are deleted, and their modules are compiled once more."""


class DependencyRecorder(KnownMeasurements):
    """Dependency recorder: a table of measurements that records each lookup and its first answer."""

    def __init__(self, knowledge: KnownMeasurements) -> None:
        super().__init__()
        self._measurements = knowledge
        self._answers: dict[str, str] = {}

    def get(self, region: str) -> Measurement | None:
        known = self._measurements.get(region)
        self._answers.setdefault(region, _decision_state(known))
        return known

    def add(self, region: str, measured: Measurement) -> None:
        self._measurements.add(region, measured)

    def replace(self, known: Mapping[str, Measurement]) -> None:
        self._measurements.replace(known)

    def __len__(self) -> int:
        return len(self._measurements)

    @property
    def fingerprint(self) -> str:
        return self._measurements.fingerprint

    @property
    def regions(self) -> tuple[str, ...]:
        """Digests of the recorded lookups."""
        return tuple(sorted(self._answers))

    def has_changed(self) -> bool:
        """Whether a lookup would have another answer now."""
        return any(_decision_state(self._measurements.get(region)) != said for region, said in self._answers.items())


def state(knowledge: KnownMeasurements, regions: Iterable[str]) -> str:
    """Hash of the answers to these lookups."""
    text = "\n".join(f"{region} {_decision_state(knowledge.get(region))}" for region in regions)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class DecisionDependencies:
    """Decision dependencies of one module's last compile."""

    regions: tuple[str, ...]
    state: str
    """State of the regions at the end of the compile."""
    key: str | None
    """State in the cache key at the start of the compile, if no lookup has changed since: the executable cached under
    it is current."""

    def key_now(self, knowledge: KnownMeasurements) -> str:
        """State for the cache key."""
        now = state(knowledge, self.regions)
        return self.key if self.key is not None and now == self.state else now

    @classmethod
    def seen(cls, recorder: DependencyRecorder, key: str) -> DecisionDependencies:
        """The dependencies of the compile that `recorder` has recorded."""
        return cls(recorder.regions, state(recorder, recorder.regions), None if recorder.has_changed() else key)


def read(module: str) -> DecisionDependencies | None:
    """Read a module's stored dependencies; None: there are none, or they are damaged."""
    try:
        values = json.loads(_file(module).read_text())
        return DecisionDependencies(tuple(map(str, values["regions"])), str(values["state"]), values["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(module: str, dependencies: DecisionDependencies) -> None:
    """Store a module's dependencies; without a writable directory the module has none."""
    file = _file(module)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=file.parent, suffix=".new")
        try:
            with os.fdopen(handle, "w") as new:
                json.dump(asdict(dependencies), new)
            os.replace(path, file)
        except OSError:
            Path(path).unlink(missing_ok=True)
            raise
        if module.startswith("00"):  # now and then
            _prune(file.parent)


def _prune(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_FILES]:
        file.unlink(missing_ok=True)


def _file(module: str) -> Path:
    return cache_directory() / FOLDER / f"{module}.json"


def _decision_state(known: Measurement | None) -> str:
    """The part of a measurement that decisions depend on, without its times, which differ in each repetition."""
    if known is None or known.provisional:
        return "" if known is None else known.sentence()
    return f"{known.chosen} {sorted(known.refused)} {verdicts(known)}"
