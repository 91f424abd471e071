"""Command `doctor`: checks of the processor, jax, the libraries, the kernels and the plugin entry point.

Each is checked separately, so that one missing piece does not hide the others.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.text import Text

from hlo_dispatch.autotune.store import DIRECTORY_VARIABLE, Store
from hlo_dispatch.cli.sample_calls import answers
from hlo_dispatch.errors import HloDispatchError, LibraryError, Refusal, Unavailable
from hlo_dispatch.jax_plugin.entry_point import is_open
from hlo_dispatch.process.machine import ISA_VARIABLE, relevant_features, this_machine
from hlo_dispatch.report.terminal import console, make_table
from hlo_dispatch.vendor import registry
from hlo_dispatch.vendor.kernels import library, registrations
from hlo_dispatch.vendor.libraries import DESCRIPTIONS, survey
from hlo_dispatch.vendor.onednn import RUNTIME_VARIABLE

OLDEST_JAX = (0, 10, 2)
_ENVIRONMENT = (
    *("HLO_DISPATCH_TABLES", "HLO_DISPATCH_POLICY", "HLO_DISPATCH_CACHE_DIR", "HLO_DISPATCH_MEASURE_SECONDS"),
    *(library.variable for library in DESCRIPTIONS.values() if library.variable),
    *(RUNTIME_VARIABLE, "HLO_DISPATCH_BIND_THREADS", "HLO_DISPATCH_KEEP_MEMORY"),
)


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    good: bool
    subject: str
    sentence: str
    """What there is, or what is missing and how to get it."""


def examine() -> list[Finding]:
    """Run all checks; never raises."""
    findings = [*_machine(), *_jax(), *_libraries()]
    return [*findings, *_kernels(), *_plugin_entry_point(), *_store()]


def print_findings(findings: list[Finding]) -> None:
    """A table of all findings and a closing line."""
    out = console()
    table = make_table("", "what", "finding")
    for finding in findings:
        mark = Text("ok", style="green") if finding.good else Text("missing", style="bold red")
        table.add_row(mark, Text(finding.subject), Text(finding.sentence))
    out.print(table)
    missing = [finding.subject for finding in findings if not finding.good]
    out.print(Text(f"missing: {', '.join(missing)}" if missing else "everything is there"))


def _machine() -> Iterator[Finding]:
    machine = this_machine()
    system = f"{platform.system()} {platform.machine()}"
    supported = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    advice = "" if supported else ": the vendor libraries are published for Linux x86_64 only"
    yield Finding(supported, "processor", f"{machine.model} ({system}){advice}")
    isa_cap = os.environ.get(ISA_VARIABLE, "")
    relevant = " ".join(relevant_features()) or "no relevant ones; oneDNN needs at least avx2"
    cap_note = f", capped: {ISA_VARIABLE} is {isa_cap}" if isa_cap else ""
    yield Finding("avx2" in machine.features, "instructions", relevant + cap_note)
    cores = _physical_cores() or "unknown"
    yield Finding(True, "threads", f"{machine.threads} usable, {os.cpu_count()} logical processors, {cores} cores")


def _physical_cores() -> int:
    """Cores of the machine, hyper-threads counted once; 0 where unknown."""
    folders = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    try:
        return len(
            {((folder / "physical_package_id").read_text(), (folder / "core_id").read_text()) for folder in folders}
        )
    except OSError:
        return 0


def _jax() -> Iterator[Finding]:
    yield Finding(True, "python", platform.python_version())
    for name in ("jax", "jaxlib"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(False, name, "not installed; get it with: pip install 'jax>=0.10.2'")
            continue
        numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
        if numbers < OLDEST_JAX:
            yield Finding(False, name, f"{version} has no compiler hook; get 0.10.2 or newer: pip install -U jax")
        else:
            yield Finding(True, name, version)


def _libraries() -> Iterator[Finding]:
    for name, answer in survey().items():
        if isinstance(answer, Unavailable):
            yield Finding(False, name, answer.sentence)
        else:
            runtime = f" over {answer.threads}" if answer.runtime else ""
            note = f"; {answer.note}" if answer.note else ""
            yield Finding(True, name, f"{answer.version}{runtime} ({answer.path}){note}")


def _kernels() -> Iterator[Finding]:
    try:
        registrations()
    except LibraryError as error:
        yield Finding(False, "kernels", str(error))
        return
    for name in registry.kernels():
        found = library(name)
        if isinstance(found, Unavailable):
            continue  # _libraries reports it
        planned_by_dtype = answers(name, found.version)
        parts = (
            f"{dtype} no ({planned.sentence})" if isinstance(planned, Refusal) else f"{dtype} {planned.implementation}"
            for dtype, planned in planned_by_dtype.items()
        )
        is_good = not planned_by_dtype or not all(isinstance(planned, Refusal) for planned in planned_by_dtype.values())
        yield Finding(is_good, name, "; ".join(parts) or "available; no sample call")


def _plugin_entry_point() -> Iterator[Finding]:
    names = {entry.name for entry in metadata.entry_points(group="jax_plugins")}
    if "hlo_dispatch" not in names:
        yield Finding(
            False,
            "HLO_DISPATCH=1",
            "JAX does not find the plugin; reinstall the package: pip install --force-reinstall hlo-dispatch",
        )
    else:
        try:
            opened = is_open()
        except HloDispatchError as error:
            yield Finding(False, "HLO_DISPATCH=1", str(error))
        else:
            state = (
                "enabled: every JAX program is dispatched"
                if opened
                else "disabled: programs call hlo_dispatch.install()"
            )
            yield Finding(True, "HLO_DISPATCH=1", state)
    for name in _ENVIRONMENT:
        if name in os.environ:
            yield Finding(True, name, os.environ[name])


def _store() -> Iterator[Finding]:
    """The measurement store; one that is only read need not be writable."""
    store = Store()
    problem = store.problem()
    is_shipped = os.environ.get("HLO_DISPATCH_POLICY") == "stored" and store.path.exists()
    if not problem or is_shipped:
        yield Finding(True, "cache folder", f"{store.directory}{', to be read' if problem else ''}")
        return
    advice = f"what is measured is forgotten when a process ends; set {DIRECTORY_VARIABLE} to a folder of yours"
    yield Finding(False, "writable cache folder", f"{store.directory} ({problem}): {advice}")
