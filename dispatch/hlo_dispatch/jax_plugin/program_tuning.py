"""Program tuning (`hlo-dispatch tune --program`): runs a program once and tunes every module that it compiles."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.tuner import TuningProgress
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin import module_collection
from hlo_dispatch.jax_plugin.tuning import Tuned, tune_module

Announce = Callable[[str], None]
"""Called with a sentence about the next step."""


@dataclass
class TunedProgram:
    """Result of tuning a program's modules."""

    status: int
    """Exit status of the program; negative: the signal that ended it."""
    modules: int = 0
    """Number of different modules that it compiled."""
    tuned: list[Tuned] = field(default_factory=list[Tuned])
    """Results of the modules with regions."""
    is_interrupted: bool = False
    """Whether Ctrl-C ended the tuning; finished measurements are stored."""

    @property
    def was_ended(self) -> bool:
        """Whether Ctrl-C ended the program, as it ends one that runs forever."""
        return self.status in (-signal.SIGINT, 128 + signal.SIGINT)


def run_program(command: str, target: Path, *, quietly: bool = False) -> int:
    """Run a program as a child process that collects its modules in a directory; returns its exit status.

    Its output is shown. Ctrl-C goes to the program: it ends one that runs forever, which is then tuned.

    Args:
        quietly: redirect its standard output to standard error.

    Raises:
        HloDispatchError: there is no such program.
    """
    words = shlex.split(command)
    if not words:
        raise HloDispatchError('name a program: --program "python train.py"')
    environment = os.environ | {
        "HLO_DISPATCH": "1",
        module_collection.VARIABLE: str(target),
        # A cache hit would not reach the hook.
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    try:
        child = subprocess.Popen(words, env=environment, stdout=2 if quietly else None)
    except OSError as problem:
        raise HloDispatchError(f"{words[0]} cannot be run: {problem.strerror}") from None
    while True:
        # A terminal's Ctrl-C reaches the child, too.
        with contextlib.suppress(KeyboardInterrupt):
            return child.wait()


def tune_program(
    command: str,
    *,
    tables: Sequence[str | Path] = (),
    seconds: float | None = None,
    validate_only: bool = False,
    quietly: bool = False,
    step: Callable[[str], TuningProgress],
    announce: Announce,
) -> TunedProgram:
    """Run a program, then tune every module that it compiled, the largest first.

    Args:
        tables: pattern tables of your own, besides those that the program installs.
        seconds: for each module.
        step: module name → its progress callback.

    Raises:
        HloDispatchError: there is no such program, or it compiled nothing that JAX's hook shows.
    """
    with tempfile.TemporaryDirectory(prefix="hlo_dispatch_program_") as folder:
        target = Path(folder)
        result = TunedProgram(run_program(command, target, quietly=quietly))
        modules = module_collection.collected(target)
        if not modules:
            raise HloDispatchError("the program compiled no module for the CPU: is its Python this environment's?")
        module_collection.apply_settings(target)
    different = list(_different(modules))
    result.modules = len(different)
    try:
        for number, (module, one) in enumerate(different, 1):
            announce(f"module {number} of {len(different)}: {module.name}")
            names = [*map(str, tables), *(name for name in one.tables if name not in map(str, tables))]
            tuned = tune_module(
                one.module, tables=names, seconds=seconds, validate_only=validate_only, step=step(module.name)
            )
            if tuned.regions or tuned.report.candidates:
                result.tuned.append(tuned)
    except KeyboardInterrupt:
        result.is_interrupted = True
    return result


def _different(modules: Sequence[module_collection.Collected]) -> Iterator[tuple[Module, module_collection.Collected]]:
    """The modules without those that differ only in names."""
    seen: set[tuple[bytes, tuple[str, ...]]] = set()
    for one in modules:
        module = Module.from_bytes(one.module)
        key = Digests(module).of_computation(module.entry.id), one.tables
        if key not in seen:
            seen.add(key)
            yield module, one
