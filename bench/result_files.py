"""Files of results: every sample, with the machine and the versions it was measured with.

A file is replaced whole after each measurement, so whatever stops a campaign leaves what was measured; the same
command with `resume` goes on where it stopped. A file belongs to one machine and one set of versions.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from hlo_dispatch.errors import HloDispatchError, Unavailable
from hlo_dispatch.ir.module_files import write_atomically
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.vendor.libraries import mkl, onednn

FORMAT = "hlo-dispatch bench 1"
_PACKAGES = (
    "jax", "jaxlib", "torch", "openvino", "nncf", "llama-cpp-python", "keras", "flax", "transformers", "diffusers",
    "hlo-dispatch",
)  # fmt: skip
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16")


class ResultsError(HloDispatchError):
    """A file of results that cannot be read, or was measured elsewhere."""


class Results:
    """One file of results; entries are dicts with a name, and names are unique."""

    def __init__(self, path: Path, kind: str, header: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        self.path, self.kind, self.header = path, kind, header
        self._entries = {entry["name"]: entry for entry in entries}

    @classmethod
    def open(cls, path: Path, kind: str) -> Results:
        """The file as it is, or a new one that is written with the first entry.

        Raises:
            ResultsError: it is no such file, or another machine's or of other versions.
        """
        header = describe()
        if not path.exists():
            return cls(path, kind, header, [])
        found = cls.read(path)
        if found.kind != kind:
            raise ResultsError(f"{path} holds results of {found.kind}, not of {kind}: say another --output")
        differing = [key for key in ("machine", "versions") if found.header[key] != header[key]]
        if differing:
            raise ResultsError(
                f"{path} was measured with another {' and other '.join(differing)}: say another --output"
            )
        return found

    @classmethod
    def read(cls, path: Path) -> Results:
        """A file that may come from anywhere.

        Raises:
            ResultsError: it is no file of results.
        """
        try:
            content = json.loads(path.read_text())
            if content["format"] != FORMAT:
                raise ResultsError(f"{path} has the format {content['format']!r}, not {FORMAT!r}")
            return cls(path, content["kind"], content["header"], content["results"])
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{path} is no file of results ({type(error).__name__}: {error})") from None

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> dict[str, Any] | None:
        return self._entries.get(name)

    def put(self, entry: dict[str, Any]) -> None:
        """Add an entry, or replace the one of its name, and write the file."""
        self._entries[entry["name"]] = entry
        self.write()

    def write(self) -> None:
        """Write the whole file: another name first, then renamed."""
        top = json.dumps({"format": FORMAT, "kind": self.kind, "header": self.header}, indent=1).removesuffix("\n}")
        # A line for each entry: differences between two files of results can be read.
        lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in self)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(str(self.path), f'{top},\n "results": [\n{lines}\n]}}\n'.encode())


def default_path(kind: str) -> Path:
    """Default path of results: one file for each jax and each machine, in the user's cache folder."""
    header = describe()
    words = f"{header['machine']['model']} {header['machine']['threads']} {header['versions']['oneDNN']}"
    mark = "".join(character if character.isalnum() else "-" for character in words)
    base = os.environ.get("HLO_DISPATCH_CACHE_DIR") or platformdirs.user_cache_dir("hlo-dispatch")
    return Path(base) / "bench" / f"{kind}-jax{header['versions']['jax']}-{mark}.json"


def describe() -> dict[str, Any]:
    """Header of a result file: the machine and the versions."""
    machine = this_machine()
    versions = {name: version for name in _PACKAGES if (version := _version(name))}
    dnnl, blas = onednn(), mkl()
    versions["oneDNN"] = "none" if isinstance(dnnl, Unavailable) else f"{dnnl.version} over {dnnl.threads}"
    versions["oneMKL"] = "none" if isinstance(blas, Unavailable) else f"{blas.version} over {blas.runtime}"
    versions["Python"] = platform.python_version()
    return {
        "machine": {
            "model": machine.model,
            "threads": machine.threads,
            "features": [name for name in _FEATURES if name in machine.features],
        },
        "versions": versions,
    }


def header_lines(header: dict[str, Any]) -> list[str]:
    """The header for a person."""
    machine, versions = header["machine"], header["versions"]
    lines = [
        f"{machine['model']}, {machine['threads']} threads, {' '.join(machine['features'])}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    if "peak" in header:
        rates = ", ".join(f"{dtype} {rate / 1e9:.0f} GFLOP/s" for dtype, rate in header["peak"]["arithmetic"].items())
        bandwidth = header["peak"]["bandwidth"] / 1e9
        lines.append(f"measured peak: {rates}, memory {bandwidth:.1f} GB/s")
    return lines


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def median(side: dict[str, Any] | None) -> float | None:
    """The middle of a side's samples, in seconds; None where there are none."""
    return statistics.median(side["samples"]) if side and side.get("samples") else None


def spread(side: dict[str, Any]) -> float:
    """Half the distance between the quartiles, as a fraction of the median."""
    samples = side["samples"]
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / 2 / middle
