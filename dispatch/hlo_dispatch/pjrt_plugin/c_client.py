"""Client of PJRT's C interface: compiles HLO modules, and runs them on each of its devices.

Every struct of the interface consists of 8-byte words, of which the first is its size; a number of four bytes has a
word, too. So a call is an array of words.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
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
_ONE_DEVICE = bytes.fromhex("1a0420012801")
"""CompileOptionsProto of one replica and one partition."""
_BACKEND_ONLY = bytes.fromhex("1a025801")
"""To be appended to one: without optimization (run_backend_only)."""
_INTEGER_OPTION, _INTEGER_OPTION_SIZE = 1, 56
"""Type and size of a PJRT_NamedValue that is a number."""
_EXECUTE_OPTIONS = -1
"""Key of the size of a struct that no function is given directly."""
_KEPT = 7
"""Word of these options that has the numbers of operands which are not donated; behind it their count."""
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
    """A client with its devices."""

    def __init__(
        self,
        plugin: Path,
        *,
        backend_only: bool = True,
        sizes: Mapping[int, int] | None = None,
        devices: int | None = None,
    ) -> None:
        """Load a plugin and make a client.

        Args:
            backend_only: whether modules are compiled as they are.
            sizes: bytes of the struct of the function at a place, as a client of an older version has it.
            devices: how many it has; None: as many as the library makes of itself, of which the first is used.
        """
        self._more_options = _BACKEND_ONLY if backend_only else b""
        self._sizes = sizes or {}
        self._library: Any = ctypes.CDLL(str(plugin))
        self._library.GetPjrtApi.restype = ctypes.POINTER(ctypes.c_uint64)
        self._api: Any = self._library.GetPjrtApi()
        self.call(_INITIALIZE)
        name = ctypes.create_string_buffer(b"cpu_device_count")
        option = _words(ctypes.addressof(name), len(name.value), _INTEGER_OPTION, devices or 1, 1)
        option[0] = _INTEGER_OPTION_SIZE
        # The client is behind the options and two callbacks with their arguments.
        self.client: int = self.call(_CREATE_CLIENT, ctypes.addressof(option), int(devices is not None))[8]
        found = self.call(_ADDRESSABLE_DEVICES, self.client)[3]
        self._devices = ctypes.cast(found, ctypes.POINTER(ctypes.c_uint64))[: devices or 1]

    def run(self, module: bytes, inputs: Sequence[Any], element_types: Sequence[str], results: int) -> list[bytes]:
        """Compile a serialized HloModuleProto, run it once, and return the bytes of its results.

        Raises:
            PjrtError: the runtime does not compile or run it.
        """
        with self.loaded(module) as executable:
            return self.execute(executable, inputs, element_types, results)

    def add_kernel(self, target: str, symbol: str, path: str) -> None:
        """Have hlo-dispatch's plugin register a handler of a shared library. Raises PjrtError."""
        add = self._library.hlo_dispatch_pjrt_add_kernel
        add.restype = ctypes.c_char_p
        problem = add(*(text.encode() for text in (target, symbol, path)))
        if problem:
            raise PjrtError(problem.decode())

    @contextlib.contextmanager
    def loaded(self, module: bytes, options: bytes = b"") -> Generator[int, None, None]:
        """The executable of a serialized HloModuleProto, for as long as the block lasts. Raises PjrtError."""
        executable = self.compile(module, options=options)
        try:
            yield executable
        finally:
            self.call(_DESTROY_EXECUTABLE, executable)

    def execute(self, executable: int, inputs: Sequence[Any], types: Sequence[str], results: int) -> list[bytes]:
        """The results of each device in turn; all have the same inputs. Raises PjrtError."""
        with self.uploaded(inputs, types) as operands:
            made = self._execute(executable, operands, results)
        return [self.download(buffer) for buffer in itertools.chain(*made)]

    @contextlib.contextmanager
    def uploaded(self, inputs: Sequence[Any], types: Sequence[str]) -> Generator[list[list[int]], None, None]:
        """Each device's buffers with the inputs, for as long as the block lasts."""
        operands = [
            [self.upload(value, kind, device) for value, kind in zip(inputs, types, strict=True)]
            for device in self._devices
        ]
        try:
            yield operands
        finally:
            for operand in itertools.chain(*operands):
                self.destroy(operand)

    def run_kept(self, executable: int, operands: Sequence[Sequence[int]], results: int) -> None:
        """Run an executable on each device's buffers, of which it may overwrite none, and free the results."""
        for buffer in itertools.chain(*self._execute(executable, operands, results, keeps_operands=True)):
            self.destroy(buffer)

    def destroy(self, buffer: int) -> None:
        """Free a buffer."""
        self.call(_DESTROY_BUFFER, buffer)

    def compile(self, module: bytes, form: str = "hlo", options: bytes = b"") -> int:
        """Compile and load a serialized HloModuleProto, or StableHLO (`mlir`). Raises PjrtError."""
        code, name = ctypes.create_string_buffer(module, len(module)), ctypes.create_string_buffer(form.encode())
        serialized = (options or _ONE_DEVICE) + self._more_options
        size = len(serialized)
        given = ctypes.create_string_buffer(serialized, size)
        program = _words(ctypes.addressof(code), len(module), ctypes.addressof(name), len(form))
        return self.call(_COMPILE, self.client, ctypes.addressof(program), ctypes.addressof(given), size)[6]

    def upload(self, value: Any, element_type: str, device: int = 0) -> int:
        """A buffer with an array's values, on one of the devices; 0: on the first."""
        dimensions = (ctypes.c_int64 * max(value.ndim, 1))(*value.shape)
        arguments = (self.client, value.ctypes.data, _TYPES[element_type], ctypes.addressof(dimensions), value.ndim,
                     0, 0, _COPIED_DURING_THE_CALL, device or self._devices[0])  # fmt: skip
        *_, done, buffer = self.call(_UPLOAD, *arguments)[:15]
        self._await(done)
        return buffer

    def execute_buffers(self, executable: int, operands: Sequence[int], results: int) -> list[int]:
        """Run an executable of one device on buffers, which may be donated by it; returns those of its results."""
        return self._execute(executable, [operands], results)[0]

    def _execute(
        self, executable: int, operands: Sequence[Sequence[int]], results: int, *, keeps_operands: bool = False
    ) -> list[list[int]]:
        """Run an executable on each device's buffers; returns each device's results."""
        devices, count = len(operands), len(operands[0])
        arguments = [(ctypes.c_uint64 * max(count, 1))(*buffers) for buffers in operands]
        made = [(ctypes.c_uint64 * max(results, 1))() for _ in operands]
        argument_lists = (ctypes.c_uint64 * devices)(*map(ctypes.addressof, arguments))
        result_lists = (ctypes.c_uint64 * devices)(*map(ctypes.addressof, made))
        done, options = (ctypes.c_uint64 * devices)(), _words()
        options[0] = self._sizes.get(_EXECUTE_OPTIONS, options[0])
        kept = (ctypes.c_int64 * max(count, 1))(*range(count))
        if keeps_operands:
            options[_KEPT], options[_KEPT + 1] = ctypes.addressof(kept), count
        self.call(_EXECUTE, executable, ctypes.addressof(options), ctypes.addressof(argument_lists), devices, count,
                   ctypes.addressof(result_lists), ctypes.addressof(done))  # fmt: skip
        for event in done:
            self._await(event)
        return [list(buffers)[:results] for buffers in made]

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
