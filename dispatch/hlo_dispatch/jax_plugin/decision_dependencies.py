"""What the decisions for a module rested on, kept beside the measurements for later processes.

A compile looks up regions, and its program as a whole, in what was measured. As long as none of these answers
changes, compiling the module again comes to the same result, whatever else is measured meanwhile.
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

from hlo_dispatch.autotune.measurement_requests import CLOSE_LOSS
from hlo_dispatch.autotune.store import cache_directory
from hlo_dispatch.selection.measurements import CONVINCING_GAIN, STOCK, KnownMeasurements, Measurement

FOLDER = "modules"
_MOST_FILES = 5000
"""Of modules; the oldest go. One that is gone is compiled once more."""


class DependencyRecorder(KnownMeasurements):
    """The same knowledge, and a note of what was asked of it and answered first."""

    def __init__(self, knowledge: KnownMeasurements) -> None:
        super().__init__()
        self._asked_of = knowledge
        self._answers: dict[str, str] = {}

    def get(self, region: str) -> Measurement | None:
        known = self._asked_of.get(region)
        self._answers.setdefault(region, _said(known))
        return known

    def add(self, region: str, measured: Measurement) -> None:
        self._asked_of.add(region, measured)

    def replace(self, known: Mapping[str, Measurement]) -> None:
        self._asked_of.replace(known)

    def __len__(self) -> int:
        return len(self._asked_of)

    @property
    def fingerprint(self) -> str:
        return self._asked_of.fingerprint

    @property
    def regions(self) -> tuple[str, ...]:
        """What was asked for."""
        return tuple(sorted(self._answers))

    def has_learnt(self) -> bool:
        """Whether an answer would be another one now."""
        return any(_said(self._asked_of.get(region)) != said for region, said in self._answers.items())


def state(knowledge: KnownMeasurements, regions: Iterable[str]) -> str:
    """The same for equal answers to the same questions."""
    text = "\n".join(f"{region} {_said(knowledge.get(region))}" for region in regions)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class DecisionDependencies:
    """What one module's last compile rested on."""

    regions: tuple[str, ...]
    state: str
    """Of the regions, when the compile was over."""
    key: str | None
    """What the cache's key said when the compile began, if nothing was learnt on the way: the executable that is
    cached under it is the one that would be made now."""

    def key_now(self, knowledge: KnownMeasurements) -> str:
        """What the cache's key has to say."""
        now = state(knowledge, self.regions)
        return self.key if self.key is not None and now == self.state else now

    @classmethod
    def seen(cls, witness: DependencyRecorder, key: str) -> DecisionDependencies:
        """Of the compile that `witness` saw."""
        return cls(witness.regions, state(witness, witness.regions), None if witness.has_learnt() else key)


def read(module: str) -> DecisionDependencies | None:
    """What was kept; None: nothing, or nothing that can be read."""
    try:
        values = json.loads(_file(module).read_text())
        return DecisionDependencies(tuple(map(str, values["regions"])), str(values["state"]), values["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(module: str, grounds: DecisionDependencies) -> None:
    """Keep it; where nothing can be written the module is one of which nothing is known."""
    file = _file(module)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=file.parent, suffix=".new")
        try:
            with os.fdopen(handle, "w") as new:
                json.dump(asdict(grounds), new)
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


def _said(known: Measurement | None) -> str:
    """All that a decision reads of a measurement, and not the times themselves: they differ whenever it is repeated."""
    if known is None or known.provisional:
        return "" if known is None else known.sentence()
    unsure = known.loss < 0 if known.chosen == STOCK else known.gain < CONVINCING_GAIN * known.stock
    return f"{known.chosen} {sorted(known.refused)} {known.shares_fusion} {unsure} {known.loss < CLOSE_LOSS}"
