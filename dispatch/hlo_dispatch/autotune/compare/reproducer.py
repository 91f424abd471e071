"""Reproducers of wrong results: the region before and after dispatch, the seed of its inputs, and the difference."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hlo_dispatch.autotune.compare.validation import Difference
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir import text as hlo_text


@dataclass(frozen=True)
class Reproducer:
    """Reproducer of one wrong result; `random_inputs(module, shapes, seed, kind)` recreates the inputs."""

    stock: bytes
    """The region as XLA runs it: a serialized module."""
    dispatched: bytes
    seed: int
    kind: str
    found: Difference

    def keep(self, folder: Path) -> Path:
        """Atomically write stock.hlo, dispatched.hlo, both as .pb, and inputs.json into `folder`."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".writing-"))
        try:
            for name, module in (("stock", self.stock), ("dispatched", self.dispatched)):
                (temporary / f"{name}.pb").write_bytes(module)
                (temporary / f"{name}.hlo").write_text(_text(module))
            description = {
                "seed": self.seed, "kind": self.kind, "difference": self.found.value,
                "allowed": self.found.tolerance, "result": self.found.result,
            }  # fmt: skip
            (temporary / "inputs.json").write_text(json.dumps(description, indent=2) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder


def _text(module: bytes) -> str:
    try:
        return hlo_text.to_text(module)
    except ModuleError as error:
        return f"// {error}\n"
