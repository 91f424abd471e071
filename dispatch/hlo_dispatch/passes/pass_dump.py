"""Pass dump: files of the module as it came in and after each pass that changed it (`HLO_DISPATCH_DUMP_PASSES=dir`).

A file is `<module>.<process>-<run>.<number>.<pass>.hlo`; where XLA's printer is not there or refuses the module, it is
an HloProto, `.hlo.pb`, as XLA's own dumps are.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from pathlib import Path

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.module_files import wrapped, write_atomically
from hlo_dispatch.ir.text import to_text

VARIABLE = "HLO_DISPATCH_DUMP_PASSES"
MAX_NAME = 100
"""Characters of the module's name in a file's; file systems take 255 bytes in all."""
_logger = logging.getLogger("hlo_dispatch")
_runs = itertools.count(1)
_failed: set[str] = set()
"""Directories that could not be written to; each is said once."""


class PassDump:
    """The files of one run of the passes."""

    def __init__(self, folder: str) -> None:
        self._folder, self._run, self._number = folder, f"{os.getpid()}-{next(_runs)}", itertools.count()

    def write(self, module: Module, step: str) -> None:
        """Write the module as it is behind a pass; a directory that cannot be written to is a warning."""
        if self._folder in _failed:
            return
        name = f"{module.name[:MAX_NAME]}.{self._run}.{next(self._number):02}.{step}"
        path = os.path.join(self._folder, re.sub(r"[^\w.-]+", "-", name))
        serialized = module.to_bytes()
        try:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
            try:
                write_atomically(f"{path}.hlo", to_text(serialized).encode())
            except ModuleError:
                write_atomically(f"{path}.hlo.pb", wrapped(serialized))
        except OSError as problem:
            _failed.add(self._folder)
            _logger.warning("%s is %s, where no module can be written: %s", VARIABLE, self._folder, problem.strerror)


def pass_dump() -> PassDump | None:
    """The dump of a new run; None: the environment asks for none."""
    folder = os.environ.get(VARIABLE, "")
    return PassDump(folder) if folder else None
