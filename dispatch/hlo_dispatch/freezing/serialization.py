"""Frozen programs as a file: modules, prepared arrays, and words. Nothing in it is code of Python's.

A file is a ZIP archive, stored and not compressed: `programs.json` says what there is, `program-N.pb` is a serialized
module, each array is bytes of its own. All of it is checked when it is read (loading.py).
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from collections.abc import Generator, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.machine_compatibility import called_libraries, what_it_needs
from hlo_dispatch.freezing.program import Program
from hlo_dispatch.freezing.signature import is_key

FORMAT = 2
INDEX = "programs.json"
PAGE, LARGE_PAGE = 4096, 2 << 20
"""What oneMKL packs can be read from an address that lies as the one it was written to, in its page; on some
processors in its large page (kernels/onemkl/prepacked_alignment.h)."""


def save(programs: Sequence[Program], name: str, path: str | Path) -> None:
    """Write programs, and all that they hold, to a file that appears whole or not at all.

    Raises:
        FreezeError: something of them cannot be in a file.
        OSError: it cannot be written.
    """
    arrays: dict[Hashable, Any] = {key: array for program in programs for key, array in _held(program).items()}
    numbers = {key: number for number, key in enumerate(arrays)}
    index = {
        "format": FORMAT,
        "name": name,
        "needs": what_it_needs(called_libraries(program.split.program for program in programs)),
        "arrays": [_in_words(array) for array in arrays.values()],
        "programs": [
            {
                "form": program.call_signature.to_json(),
                "arrays": [numbers[key] for key in _held(program)],
                "prepared": len(program.report.prepared),
                "holds": [[value.origin, value.shape, value.is_packed] for value in _values(program)],
            }
            for program in programs
        ],
    }
    with _replaced(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(INDEX, json.dumps(index, indent=1))
        for number, program in enumerate(programs):
            archive.writestr(module_name(number), program.split.program)
        for number, array in enumerate(arrays.values()):
            with archive.open(array_name(number), "w", force_zip64=True) as member:
                member.write(memoryview(_bytes(array)))


def module_name(number: int) -> str:
    """Of a program's module in the archive."""
    return f"program-{number}.pb"


def array_name(number: int) -> str:
    """Of an array in the archive."""
    return f"array-{number}.bin"


def _held(program: Program) -> dict[Hashable, Any]:
    """Its arrays in their order, by what they are; one that is held twice is there once."""
    held: dict[Hashable, Any] = {}
    for number, array in enumerate(program.arrays):
        # Equal keys would be one parameter less: an array that one program takes twice is written twice.
        key: Hashable = id(array)
        held[key if key not in held else (key, number)] = array
    return held


def _values(program: Program) -> list[Any]:
    return [*program.report.prepared, *program.report.kept]


def _in_words(array: Any) -> dict[str, Any]:
    if is_key(array.dtype):
        raise FreezeError("a jax.random key among what is frozen cannot be saved: freeze its data, and wrap it inside")
    place = array.unsafe_buffer_pointer() % LARGE_PAGE if array.nbytes else 0
    return {"dtype": array.dtype.name, "shape": list(array.shape), "place": place}


def _bytes(array: Any) -> Any:
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)


@contextlib.contextmanager
def _replaced(path: Path) -> Generator[Any]:
    """A file beside `path` that is renamed to it once all is written."""
    target = path.resolve()
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
