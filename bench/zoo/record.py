"""The file of counts, `tests/models/anchors.toml`: a table per model, in it one per jax."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from hlo_dispatch.bench.zoo.count import OPCODES, Counts

FILE = Path(__file__).resolve().parents[2] / "tests" / "models" / "anchors.toml"
_HEAD = """\
# How many anchors (convolutions, dots, windows that pool) each model of bench/zoo has at the pass, and how many
# are dispatched under the policy "always"; `left` says what stood in the way of the others. By model, then by jax.
# Written by `python -m bench.zoo --write`, compared by tests/models/test_zoo.py.
"""

Records = dict[str, dict[str, Counts]]
"""Model → version of jax → counts."""


def this_jax() -> str:
    """The version the counts of this process belong to."""
    return metadata.version("jax")


def read() -> Records:
    """Records of the file; empty if there is none."""
    if not FILE.exists():
        return {}
    tables = tomllib.loads(FILE.read_text())
    return {
        model: {version: _counts(entry) for version, entry in versions.items()} for model, versions in tables.items()
    }


def write(new: Mapping[str, Counts]) -> None:
    """Put this jax's counts into the file; models and versions that were not counted stay."""
    records = read()
    for model, counts in new.items():
        records.setdefault(model, {})[this_jax()] = counts
    FILE.write_text(_HEAD + "".join(_section(model, records[model]) for model in sorted(records)))


def _counts(entry: dict) -> Counts:
    anchors = {opcode: entry[opcode]["anchors"] for opcode in OPCODES}
    return Counts(anchors, {opcode: entry[opcode]["dispatched"] for opcode in OPCODES}, entry["left"])


def _section(model: str, versions: dict[str, Counts]) -> str:
    lines = []
    for version, counts in sorted(versions.items()):
        lines += ["", f'[{model}."{version}"]']
        for opcode in OPCODES:
            numbers = f"anchors = {counts.anchors[opcode]}, dispatched = {counts.dispatched[opcode]}"
            lines.append(f"{opcode} = {{ {numbers} }}")
        reasons = ", ".join(f"{code} = {number}" for code, number in counts.left.items())
        lines.append(f"left = {{ {reasons} }}" if reasons else "left = {}")
    return "\n".join(lines) + "\n"
