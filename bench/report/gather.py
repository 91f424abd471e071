"""Result files, sorted by their kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlo_dispatch.bench.result_files import Results, ResultsError, default_path

KINDS = ("patterns", "models", "profiles", "diffusion")


@dataclass(frozen=True)
class Gathered:
    """Entries by kind, and the headers they were measured under."""

    entries: dict[str, list[dict[str, Any]]]
    headers: dict[str, dict[str, Any]]

    @property
    def header(self) -> dict[str, Any]:
        """The machine and versions; the pattern file's, which has the measured peak, where there is one."""
        return next(self.headers[kind] for kind in KINDS if kind in self.headers)


def gather(files: Sequence[Path]) -> Gathered:
    """The results of these files, or of those that the commands keep by default.

    Raises:
        ResultsError: there are none, one is no file of results, or they were measured on different machines.
    """
    chosen = list(files) or [path for kind in KINDS if (path := default_path(kind)).exists()]
    if not chosen:
        raise ResultsError("nothing was measured yet: run hlo-dispatch bench, or name files of results")
    entries: dict[str, list[dict[str, Any]]] = {}
    headers: dict[str, dict[str, Any]] = {}
    for path in chosen:
        if not path.exists():
            raise ResultsError(f"{path} does not exist")
        results = Results.read(path)
        kind = results.kind.removeprefix("small-")
        if kind not in KINDS:
            raise ResultsError(f"{path} holds results of {kind}, which no report shows")
        if kind in headers:
            raise ResultsError(f"{path} is a second file with results of {kind}")
        entries[kind], headers[kind] = list(results), results.header
    machines = [header["machine"] for header in headers.values()]
    if any(machine != machines[0] for machine in machines):
        raise ResultsError("these results were measured on different machines")
    return Gathered(entries, headers)
