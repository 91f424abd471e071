"""`hlo_dispatch.load`: reads saved frozen programs, without the model's code."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import json
import struct
import threading
import zipfile
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy

from hlo_dispatch.autotune.run.inputs import dtype_of
from hlo_dispatch.errors import FreezeError, ModuleError
from hlo_dispatch.freezing.archive import LARGE_PAGE, PAGE, MappedArchive, placed
from hlo_dispatch.freezing.call_signature import CallSignature, key_of, type_named
from hlo_dispatch.freezing.machine_compatibility import differences, executable_key
from hlo_dispatch.freezing.placeholder_executable import NotCompiledForArguments, PlaceholderExecutable
from hlo_dispatch.freezing.report import FreezeReport, FrozenValue, ProgramReport, bytes_of
from hlo_dispatch.freezing.serialization import FORMAT, INDEX, array_name, executable_name, module_name
from hlo_dispatch.freezing.signature import refuse_layouts, refuse_several_devices, refuse_tensors, trace_state_clean
from hlo_dispatch.freezing.tracing import refuse_callbacks
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

_DAMAGED = (
    zipfile.BadZipFile,
    *(LookupError, ValueError, TypeError, AttributeError, EOFError),
    *(ArithmeticError, RecursionError, NotImplementedError, struct.error),
)
"""Exceptions of reading a damaged file."""
_BOUND_TO_LARGE_PAGES = "oneMKL"
"""Library whose prepacked weights may be bound to large pages, at which no file is mapped."""


@dataclass(frozen=True)
class _Saved:
    """One program of a file."""

    signature: CallSignature
    program: PlaceholderExecutable
    arrays: tuple[Any, ...]
    report: ProgramReport


def load(path: str | Path) -> Loaded:
    """Load a saved frozen function.

    Nothing is traced, selected, measured or prepacked, and the model's code is not needed. The file is mapped, and its
    arrays are read where they lie: do not write into it, replace it. Its executables are loaded where this process's
    XLA, its flags and the processor are those that made them; otherwise the programs are compiled at their first calls.

    Returns:
        A function of the arguments that were not frozen, with the signatures that it was called with before it was
        saved.

    Raises:
        FreezeError: the file is damaged, no saved frozen function, or was saved for another processor, number of
            threads, or versions of jaxlib or the libraries: the sentence says which.
        OSError: it cannot be read.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            index = json.loads(archive.read(INDEX))
            if index["format"] != FORMAT:
                raise FreezeError(f"{path} has format {index['format']}, and here {FORMAT} is read: save it anew")
            found = differences(index["needs"])
            if found:
                raise FreezeError(f"{path} was saved for {'; '.join(found)}: save it on a machine like this one")
            programs = _programs(MappedArchive(archive, file), index)
    except _DAMAGED as error:
        raise FreezeError(f"{path} is damaged, or no file that a frozen function saved: {error}") from error
    except ModuleError as error:
        raise FreezeError(f"{path} is damaged: {error}") from error
    if not programs:
        raise FreezeError(f"{path} is damaged: there is no program in it")
    return Loaded(str(index["name"]), programs)


class Loaded:
    """The frozen function that `load` returns; thread-safe."""

    def __init__(self, name: str, programs: list[_Saved]) -> None:
        self.__name__ = name
        self._programs: dict[Hashable, _Saved] = {saved.signature.key: saved for saved in programs}
        self._latest = programs[0]
        self._lock = ForkSafeLock(threading.RLock)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The function's value.

        Raises:
            FreezeError: there is no program for such arguments, or this is called inside of jax.jit and the like.
        """
        if not trace_state_clean() or jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
            raise FreezeError(
                f"{self.__name__} was loaded from a file and has no function to trace: call it outside of jax.jit, "
                "jax.grad and jax.vmap, and with jit enabled"
            )
        saved = self._latest if len(self._programs) == 1 else self._programs.get(key_of(args, kwargs), self._latest)
        try:
            return saved.program.run(saved.arrays, *args, **kwargs)
        except NotCompiledForArguments:
            return self._slow_path(args, kwargs)
        except TypeError:
            refuse_tensors(jax.tree.leaves((args, kwargs)))
            raise

    @property
    def report(self) -> FreezeReport:
        """Preprocessed values and frozen inputs of each signature's program."""
        return FreezeReport(tuple(saved.report for saved in self._programs.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that its programs hold."""
        arrays = {id(array): bytes_of(array) for saved in self._programs.values() for array in saved.arrays}
        return sum(arrays.values())

    def __repr__(self) -> str:
        return f"<loaded {self.__name__}, {len(self._programs)} programs>"

    def _slow_path(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        refuse_tensors(leaves)
        refuse_several_devices(leaves, "an argument")
        refuse_layouts(leaves)
        with self._lock:
            saved = self._programs.get(key_of(args, kwargs))
            if saved is None:
                signatures = " and ".join(str(other.signature) for other in self._programs.values())
                raise FreezeError(
                    f"{self.__name__} was saved with programs for {signatures}, and these arguments are of another "
                    "shape, type or tree: call it so before it is saved"
                )
            result = saved.program.compile_and_run(saved.arrays, *args, **kwargs)
            self._latest = saved
            return result


def _programs(archive: MappedArchive, index: dict[str, Any]) -> list[_Saved]:
    """The programs of an index.

    Raises:
        FreezeError: one calls back into Python.
        Exception: the file is damaged (_DAMAGED).
    """
    is_bound = _BOUND_TO_LARGE_PAGES in index["needs"]["libraries"]
    names = list(map(array_name, range(len(index["arrays"]))))
    arrays = [_array(archive.view(name), of, is_bound) for name, of in zip(names, index["arrays"], strict=True)]
    archive.check(names)
    is_executable = index["executables"] == executable_key()
    return [_program(archive, number, of, arrays, is_executable) for number, of in enumerate(index["programs"])]


def _program(
    archive: MappedArchive, number: int, stored: dict[str, Any], arrays: list[Any], is_executable: bool
) -> _Saved:
    signature = CallSignature.from_json(stored["form"])
    module = Module.from_bytes(archive.read(module_name(number)))
    held_arrays = tuple(arrays[place] for place in stored["arrays"])
    _check(module, [*held_arrays, *signature.arguments], signature)
    values = [
        FrozenValue(str(origin), str(shape), bytes_of(array), bool(packed))
        for (origin, shape, packed), array in zip(stored["holds"], held_arrays, strict=True)
    ]
    count = int(stored["prepared"])
    report = ProgramReport(str(signature)[1:-1], tuple(values[:count]), tuple(values[count:]))
    executable = PlaceholderExecutable(
        module,
        signature.results,
        signature.results_tree,
        donated=signature.donated,
        serialized=archive.read(executable_name(number)) if is_executable and stored["is_compiled"] else None,
    )
    return _Saved(signature, executable, held_arrays, report)


def _check(module: Module, arguments_given: list[Any], signature: CallSignature) -> None:
    """Check a module: the verifier, no callbacks into Python, and the index's signature.

    Raises:
        FreezeError: it calls back into Python.
        ModuleError: the verifier rejects it.
        ValueError: it has another signature.
    """
    verify(module)
    refuse_callbacks("a program", module)
    taken, result = module.entry.program_shape.parameters[:], module.entry.program_shape.result
    returned = result.tuple_shapes[:] if shape_of(result).element_type == "tuple" else [result]
    for shapes, values in ((taken, arguments_given), (returned, signature.results)):
        stored = [(shape.dimensions, dtype_of(shape)) for shape in map(shape_of, shapes)]
        if stored != [(tuple(value.shape), numpy.dtype(value.dtype)) for value in values]:
            raise ValueError("a program takes or returns something else than the index says")


def _array(view: Any, stored: dict[str, Any], is_bound: bool) -> Any:
    """An array of these bytes with the saved alignment; `is_bound`: to large pages, where it may be prepacked."""
    dtype, shape = type_named(stored["dtype"]), tuple(map(int, stored["shape"]))
    size = int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize
    if view.size != size or min(shape, default=0) < 0:
        raise ValueError(f"an array has {view.size} bytes, and not {size}")
    # Prepacked weights are bytes to JAX.
    is_bound = is_bound and dtype == numpy.uint8 and size > LARGE_PAGE
    memory = placed(view, int(stored["place"]), LARGE_PAGE if is_bound else PAGE)
    # Values of a module may be wider than jax_enable_x64 allows.
    with jax.enable_x64(True):
        return jax.device_put(memory.view(dtype).reshape(shape), may_alias=True)
