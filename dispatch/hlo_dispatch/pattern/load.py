"""Table loader: reads the shipped tables, then the user's. Every mistake is a TableError with file:line:column."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.pattern.table import (
    Activation,
    AnchorKind,
    Attention,
    Binary,
    Elementwise,
    GroupNorm,
    KernelBinding,
    Recurrent,
    Table,
)

if TYPE_CHECKING:
    from hlo_dispatch.pattern.build import Builder
    from hlo_dispatch.pattern.schema import TableFile

_Single = TypeVar("_Single", Attention, Elementwise, GroupNorm, Recurrent)

TablePath = str | os.PathLike[str]
TABLES_VARIABLE = "HLO_DISPATCH_TABLES"
"""Paths of the user's tables, joined by the system's path separator, for wherever an argument names none."""


def shipped_tables() -> tuple[Path, ...]:
    """The tables that come with the package: inside it when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "patterns", package.parents[1] / "patterns"):
        found = tuple(sorted(folder.glob("*.yaml")))
        if found:
            return found
    raise TableError(str(package / "patterns"), 1, 1, "the shipped tables are missing", "install the package again")


def load_tables(paths: Iterable[TablePath] = (), *, shipped: bool = True) -> Table:
    """The shipped tables and the files or folders in `paths`, as one table; cached until a file changes."""
    if isinstance(paths, str | os.PathLike):
        paths = (paths,)
    files = list(shipped_tables()) if shipped else []
    for path in paths:
        files += _files(Path(path))
    return _load(tuple((file, _stamp(file)) for file in dict.fromkeys(files)))


def tables_or_default(tables: Iterable[TablePath] | None) -> tuple[str, ...]:
    """Paths of the user's tables: the argument, or what HLO_DISPATCH_TABLES names where that is None.

    Raises:
        TableError: the variable names a file that is not there.
    """
    if tables is not None:
        return (str(tables),) if isinstance(tables, str | os.PathLike) else tuple(str(path) for path in tables)
    named = tuple(path for path in os.environ.get(TABLES_VARIABLE, "").split(os.pathsep) if path)
    for path in named:
        if not os.path.exists(path):
            raise TableError(path, 1, 1, "there is no such table", f"{TABLES_VARIABLE} names it")
    return named


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise TableError(str(path), 1, 1, "no tables in this folder", "tables are files named *.yaml")
    return found


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)  # reading it gives the message
    return (status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _load(stamped: tuple[tuple[Path, tuple[int, int]], ...]) -> Table:
    from hlo_dispatch.pattern.build import Builder  # pydantic and yaml cost 100 ms: only when a table is read
    from hlo_dispatch.pattern.source import Source

    digest = hashlib.sha256()
    files: list[tuple[Builder, TableFile]] = []
    for path, _ in stamped:
        source = Source(path)
        digest.update(source.bytes + b"\0")
        files.append((Builder(source), _validated(source)))
    _refuse_duplicates(files)
    kernels: dict[str, KernelBinding] = _build(files, "kernels", lambda b: b.kernel)
    kernels |= _routine_kernels(files, kernels)
    activations: dict[str, Activation] = _build(files, "activations", lambda b: b.activation)
    binaries: dict[str, Binary] = _build(files, "binaries", lambda b: b.binary)
    anchors = _anchors(files, kernels, list(activations), list(binaries))
    _refuse_equal_anchors(anchors.values())
    routines = [name for _, file in files for name in file.routines]
    return Table(
        tuple(activations.values()),
        _by_opcode(binaries),
        anchors,
        kernels,
        _patterns(files, kernels, activations),
        tuple(path for path, _ in stamped),
        tuple(b.routine(name, entry, kernels, routines) for b, file in files for name, entry in file.routines.items()),
        _the_only([b.attention(name, e, kernels) for b, file in files for name, e in file.attentions.items()]),
        _the_only([b.recurrent(name, e, kernels) for b, file in files for name, e in file.recurrents.items()]),
        _the_only([b.group_norm(name, e, kernels) for b, file in files for name, e in file.group_norms.items()]),
        _the_only([b.elementwise(name, e, kernels) for b, file in files for name, e in file.elementwise.items()]),
        digest.hexdigest(),
    )


def _validated(source: Any) -> TableFile:
    from pydantic import ValidationError

    from hlo_dispatch.pattern.messages import schema_error
    from hlo_dispatch.pattern.schema import TableFile

    try:
        return TableFile.model_validate(source.values)
    except ValidationError as error:
        raise schema_error(source, error) from None


def _refuse_duplicates(files: list[tuple[Builder, TableFile]]) -> None:
    """Refuses duplicate keys across files, shipped ones included; within one file they are an error already."""
    seen: dict[tuple[str, str], Any] = {}
    for builder, file in files:
        for section in (
            "activations",
            "binaries",
            "epilogues",
            "anchors",
            "kernels",
            "patterns",
            "routines",
            "attentions",
            "recurrents",
            "group_norms",
            "elementwise",
        ):
            for name in getattr(file, section):
                location = builder.source.key_location((section, name))
                first = seen.setdefault((section, name), location)
                if first is not location:
                    advice = f"the first is at {first}; choose another name"
                    raise builder.source.error(location, f"{name!r} is already in {section}", advice)


def _refuse_equal_anchors(anchors: Iterable[AnchorKind]) -> None:
    """Two entries of one op kind and element type must differ in priority."""
    seen: list[AnchorKind] = []
    for anchor in anchors:
        for first in seen:
            same = (first.op_kind, first.priority) == (anchor.op_kind, anchor.priority)
            both = [dtype for dtype in anchor.dtypes if dtype in first.dtypes]
            if same and both:
                location = anchor.location
                what = f"the same {both[0]} instructions (op kind {anchor.op_kind})"
                problem = f"{anchor.name!r} and {first.name!r} take {what} with priority {anchor.priority}"
                advice = f"write priority: in one of them; the other is at {first.location}"
                raise TableError(location.file, location.line, location.column, problem, advice)
        seen.append(anchor)


def _the_only(found: Sequence[_Single]) -> tuple[_Single, ...]:
    """At most one entry of such a section is allowed: all of them would match the same instructions."""
    if len(found) > 1:
        location = found[1].location
        problem = f"{found[1].name!r} takes what {found[0].name!r} takes"
        raise TableError(
            location.file, location.line, location.column, problem, f"remove it; the first is at {found[0].location}"
        )
    return tuple(found)


def _build(
    files: list[tuple[Builder, TableFile]], section: str, method: Callable[[Builder], Callable[..., Any]]
) -> dict[str, Any]:
    return {
        name: method(builder)(name, entry) for builder, file in files for name, entry in getattr(file, section).items()
    }


def _anchors(
    files: list[tuple[Builder, TableFile]],
    kernels: Mapping[str, KernelBinding],
    activations: list[str],
    binaries: list[str],
) -> dict[str, AnchorKind]:
    from hlo_dispatch.pattern.epilogue_blocks import EpilogueBlocks

    blocks = EpilogueBlocks({name: (b.source, block) for b, file in files for name, block in file.epilogues.items()})
    for builder, file in files:
        for name, block in file.epilogues.items():
            builder.epilogue_block(name, block, blocks, activations, binaries)
    return {
        name: builder.anchor(name, entry, kernels, activations, binaries, blocks)
        for builder, file in files
        for name, entry in file.anchors.items()
    }


def _routine_kernels(
    files: list[tuple[Builder, TableFile]], declared: Mapping[str, KernelBinding]
) -> dict[str, KernelBinding]:
    """The kernels that shipped routines name; a user's routine may name only those and what its table declares."""
    shipped = set(shipped_tables())
    found = (
        kernel
        for builder, file in files
        if file.routines and builder.source.path in shipped
        for name, entry in file.routines.items()
        for kernel in builder.routine_kernels(name, entry)
    )
    return {kernel.name: kernel for kernel in found if kernel.name not in declared}


def _patterns(
    files: list[tuple[Builder, TableFile]],
    kernels: Mapping[str, KernelBinding],
    activations: Mapping[str, Activation],
) -> tuple[Pattern, ...]:
    if not any(file.patterns for _, file in files):
        return ()
    from hlo_dispatch.pattern.build_pattern import PatternBuilder
    from hlo_dispatch.pattern.structure import ambiguous_pair, by_priority

    shipped = set(shipped_tables())
    found: list[Pattern] = []
    for builder, file in files:
        source = builder.source
        own = PatternBuilder(source, kernels, activations, is_user_defined=source.path not in shipped)
        found += [own.pattern(name, entry) for name, entry in file.patterns.items()]
    tied = ambiguous_pair(found)
    if tied is not None:
        first, second = tied
        problem = f"{second.name!r} and {first.name!r} can match one instruction with priority {first.priority}"
        advice = f"write priority: in one of them; the other is at {first.location}"
        raise TableError(second.location.file, second.location.line, second.location.column, problem, advice)
    return by_priority(found)


def _by_opcode(binaries: Mapping[str, Binary]) -> dict[str, Binary]:
    found: dict[str, Binary] = {}
    for binary in binaries.values():
        first = found.setdefault(binary.opcode, binary)
        if first is not binary:
            location = binary.location
            problem = f"{binary.name!r} is a second binary for the opcode {binary.opcode}"
            raise TableError(
                location.file, location.line, location.column, problem, f"the first is at {first.location}"
            )
    return found
