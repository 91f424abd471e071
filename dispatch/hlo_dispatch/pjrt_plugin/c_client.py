"""Client of PJRT's C interface: compiles HLO modules, and runs them.

Every struct of the interface consists of 8-byte words, of which the first is its size; a number of four bytes has a
word, too. So a call is an array of words.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hlo_dispatch.errors import HloDispatchError

_WORDS = 128
"""More than any struct has; the rest is zeros."""
_TABLE = 5
"""The word of PJRT_Api at which its functions begin."""
# Places of functions in the table.
_DESTROY_ERROR, _ERROR_MESSAGE, _INITIALIZE, _AWAIT, _DESTROY_EVENT = 0, 1, 3, 8, 5
_CREATE_CLIENT, _ADDRESSABLE_DEVICES, _COMPILE, _UPLOAD = 10, 16, 20, 22
_DESTROY_EXECUTABLE, _EXECUTE, _DESTROY_BUFFER, _DOWNLOAD = 50, 55, 58, 70
_OPTIONS = {False: bytes.fromhex("1a0420012801"), True: bytes.fromhex("1a06200128015801")}
"""CompileOptionsProto of one replica and one partition; True: without optimization (run_backend_only)."""
_EXECUTE_OPTIONS = -1
"""Key of the size of a struct that no function is given directly."""
_TYPES = {
    name: number
    for number, name in enumerate(
        "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn".split(), start=1
    )
}
_COPIED_DURING_THE_CALL = 0


class PjrtError(HloDispatchError):
    """An error of the runtime, in its own words."""


class CClient:
    """A client with its first device."""

    def __init__(self, plugin: Path, *, backend_only: bool = True, sizes: Mapping[int, int] | None = None) -> None:
        """Load a plugin and make a client.

        Args:
            backend_only: whether modules are compiled as they are.
            sizes: bytes of the struct of the function at a place, as a client of an older version has it.
        """
        self._options = _OPTIONS[backend_only]
        self._sizes = sizes or {}
        library = ctypes.CDLL(str(plugin))
        library.GetPjrtApi.restype = ctypes.POINTER(ctypes.c_uint64)
        self._api: Any = library.GetPjrtApi()
        self.call(_INITIALIZE)
        # The client is behind the options and two callbacks with their arguments.
        self.client: int = self.call(_CREATE_CLIENT)[8]
        devices, _ = self.call(_ADDRESSABLE_DEVICES, self.client)[3:5]
        self._device = ctypes.cast(devices, ctypes.POINTER(ctypes.c_uint64))[0]

    def run(self, module: bytes, inputs: Sequence[Any], element_types: Sequence[str], results: int) -> list[bytes]:
        """Compile a serialized HloModuleProto, run it once, and return the bytes of its results.

        Raises:
            PjrtError: the runtime does not compile or run it.
        """
        with self.loaded(module) as executable:
            return self.execute(executable, inputs, element_types, results)

    @contextlib.contextmanager
    def loaded(self, module: bytes) -> Generator[int, None, None]:
        """The executable of a serialized HloModuleProto, for as long as the block lasts. Raises PjrtError."""
        executable = self.compile(module)
        try:
            yield executable
        finally:
            self.call(_DESTROY_EXECUTABLE, executable)

    def execute(self, executable: int, inputs: Sequence[Any], types: Sequence[str], results: int) -> list[bytes]:
        """Run an executable once. Raises PjrtError."""
        operands = [self.upload(value, kind) for value, kind in zip(inputs, types, strict=True)]
        made = self.execute_buffers(executable, operands, results)
        for operand in operands:
            self.destroy(operand)
        return [self.download(buffer) for buffer in made]

    def destroy(self, buffer: int) -> None:
        """Free a buffer."""
        self.call(_DESTROY_BUFFER, buffer)

    def compile(self, module: bytes, form: str = "hlo") -> int:
        """Compile and load a serialized HloModuleProto, or StableHLO (`mlir`). Raises PjrtError."""
        code, name = ctypes.create_string_buffer(module, len(module)), ctypes.create_string_buffer(form.encode())
        size = len(self._options)
        options = ctypes.create_string_buffer(self._options, size)
        program = _words(ctypes.addressof(code), len(module), ctypes.addressof(name), len(form))
        return self.call(_COMPILE, self.client, ctypes.addressof(program), ctypes.addressof(options), size)[6]

    def upload(self, value: Any, element_type: str) -> int:
        """A buffer with an array's values."""
        dimensions = (ctypes.c_int64 * max(value.ndim, 1))(*value.shape)
        arguments = (self.client, value.ctypes.data, _TYPES[element_type], ctypes.addressof(dimensions), value.ndim,
                     0, 0, _COPIED_DURING_THE_CALL, self._device)  # fmt: skip
        *_, done, buffer = self.call(_UPLOAD, *arguments)[:15]
        self._await(done)
        return buffer

    def execute_buffers(self, executable: int, operands: Sequence[int], results: int) -> list[int]:
        """Run an executable on buffers, which may be donated by it; returns those of its results."""
        arguments, made = (ctypes.c_uint64 * max(len(operands), 1))(*operands), (ctypes.c_uint64 * max(results, 1))()
        argument_lists = (ctypes.c_uint64 * 1)(ctypes.addressof(arguments))
        result_lists = (ctypes.c_uint64 * 1)(ctypes.addressof(made))
        done, options = (ctypes.c_uint64 * 1)(), _words()
        options[0] = self._sizes.get(_EXECUTE_OPTIONS, options[0])
        self.call(_EXECUTE, executable, ctypes.addressof(options), ctypes.addressof(argument_lists), 1, len(operands),
                   ctypes.addressof(result_lists), ctypes.addressof(done))  # fmt: skip
        self._await(done[0])
        return list(made)[:results]

    def download(self, buffer: int) -> bytes:
        """A buffer's bytes; it is freed."""
        size = self.call(_DOWNLOAD, buffer)[5]
        data = np.empty(size, np.uint8)
        self._await(self.call(_DOWNLOAD, buffer, 0, data.ctypes.data, size)[6])
        self.call(_DESTROY_BUFFER, buffer)
        return data.tobytes()

    def _await(self, event: int) -> None:
        self.call(_AWAIT, event)
        self.call(_DESTROY_EVENT, event)

    def call(self, place: int, *fields: int) -> Any:
        """Call the function at a place of the table; returns its struct's words. Raises PjrtError."""
        words = _words(*fields)
        words[0] = self._sizes.get(place, words[0])
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self._api[_TABLE + place])
        error = function(ctypes.addressof(words))
        if place not in (_DESTROY_ERROR, _ERROR_MESSAGE) and error:
            message = self.call(_ERROR_MESSAGE, error)
            text = ctypes.string_at(message[3], message[4]).decode(errors="replace")
            self.call(_DESTROY_ERROR, error)
            raise PjrtError(text)
        return words


def _words(*fields: int) -> Any:
    """A struct: its size, no extension, the fields."""
    return (ctypes.c_uint64 * _WORDS)(8 * _WORDS, 0, *fields)
