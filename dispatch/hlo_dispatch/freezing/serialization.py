"""Serialization of frozen programs: modules, preprocessed arrays and an index in one file, without Python code.

A file is an uncompressed ZIP archive (archive.py): `programs.json` is the index, `program-N.pb` a serialized module,
`program-N.xla` XLA's executable of it, each array a member of raw bytes. loading.py checks all of it.
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
from hlo_dispatch.freezing.archive import LARGE_PAGE, write_aligned
from hlo_dispatch.freezing.machine_compatibility import called_libraries, executable_key, what_it_needs
from hlo_dispatch.freezing.program import Program
from hlo_dispatch.freezing.signature import is_key

FORMAT = 3
INDEX = "programs.json"


def save(programs: Sequence[Program], name: str, path: str | Path) -> None:
    """Atomically write programs and their arrays to a file.

    Raises:
        FreezeError: a value cannot be serialized.
        OSError: the file cannot be written.
    """
    arrays: dict[Hashable, Any] = {key: array for program in programs for key, array in _keyed_arrays(program).items()}
    numbers = {key: number for number, key in enumerate(arrays)}
    described = [_to_json(array) for array in arrays.values()]
    executables = [program.program.serialize() for program in programs]
    index = {
        "format": FORMAT,
        "name": name,
        "needs": what_it_needs(called_libraries(program.split.program for program in programs)),
        "executables": executable_key(),
        "arrays": described,
        "programs": [
            {
                "form": program.call_signature.to_json(),
                "arrays": [numbers[key] for key in _keyed_arrays(program)],
                "prepared": len(program.report.prepared),
                "holds": [[value.origin, value.shape, value.is_packed] for value in _values(program)],
                "is_compiled": executable is not None,
            }
            for program, executable in zip(programs, executables, strict=True)
        ],
    }
    with _replaced(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(INDEX, json.dumps(index, indent=1))
        for number, (program, executable) in enumerate(zip(programs, executables, strict=True)):
            archive.writestr(module_name(number), program.split.program.to_bytes())
            if executable is not None:
                archive.writestr(executable_name(number), executable)
        for number, (array, of) in enumerate(zip(arrays.values(), described, strict=True)):
            write_aligned(archive, file, array_name(number), memoryview(_bytes(array)), of["place"])


def module_name(number: int) -> str:
    """Name of a program's module in the archive."""
    return f"program-{number}.pb"


def executable_name(number: int) -> str:
    """Name of a program's executable in the archive, which may have none."""
    return f"program-{number}.xla"


def array_name(number: int) -> str:
    """Name of an array in the archive."""
    return f"array-{number}.bin"


def _keyed_arrays(program: Program) -> dict[Hashable, Any]:
    """Key → array, in the program's order; programs that share an array have the same key."""
    keyed: dict[Hashable, Any] = {}
    for number, array in enumerate(program.arrays or ()):
        # An array that one program takes twice needs two keys: it is written twice.
        key: Hashable = id(array)
        keyed[key if key not in keyed else (key, number)] = array
    return keyed


def _values(program: Program) -> list[Any]:
    return [*program.report.prepared, *program.report.kept]


def _to_json(array: Any) -> dict[str, Any]:
    if is_key(array.dtype):
        raise FreezeError("a jax.random key among what is frozen cannot be saved: freeze its data, and wrap it inside")
    place = array.unsafe_buffer_pointer() % LARGE_PAGE if array.nbytes else 0
    return {"dtype": array.dtype.name, "shape": list(array.shape), "place": place}


def _bytes(array: Any) -> Any:
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)


@contextlib.contextmanager
def _replaced(path: Path) -> Generator[Any]:
    """A temporary file that replaces `path` at the end of the block."""
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
