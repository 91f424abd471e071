"""Record of `bench.never_slower`'s results, in a file that a later run resumes from."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.verdict import Result


class ResultRecord:
    """Everything measured so far, kept in a file after each program."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        self._path = path
        self.results: dict[tuple[str, str], Result] = {}
        if path is not None and resume and path.exists():
            kept = json.loads(path.read_text())
            if kept["versions"] != _versions():
                raise SystemExit(f"{path} was measured with {kept['versions']}, not {_versions()}: choose another file")
            for values in kept["results"]:
                values.pop("verdict")
                self._keep(Result(**values))

    def __contains__(self, program: tuple[str, str]) -> bool:
        return program in self.results

    def add(self, result: Result) -> None:
        """Keep and show it."""
        self._keep(result)
        print(result.line, flush=True)
        if self._path is not None:
            results = [asdict(r) | {"verdict": r.verdict} for r in self.results.values()]
            text = json.dumps({"versions": _versions(), "machine": header(), "results": results}, indent=1)
            temporary = self._path.with_name(f".{self._path.name}.writing")
            temporary.write_text(text + "\n")
            os.replace(temporary, self._path)

    def _keep(self, result: Result) -> None:
        self.results[result.kind, result.name] = result

    def of(self, kind: str) -> list[Result]:
        return [result for result in self.results.values() if result.kind == kind]


def _versions() -> str:
    from importlib import metadata

    return f"jax {metadata.version('jax')}, Python {platform.python_version()}"
