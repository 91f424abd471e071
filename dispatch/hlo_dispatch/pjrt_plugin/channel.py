"""Messages between the plugin and the rewriter, over a socket pair; kernels/pjrt/rewriter.cc has the other end."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

HELLO, REWRITE, UNCHANGED, REWRITTEN, FAILED = range(5)
_VERSION = 3
_HEADER = struct.Struct("=IIQ")
_SOCKET = 3
"""Descriptor of the rewriter's end."""


@dataclass(frozen=True)
class CompileRequest:
    """A program of the host."""

    module: bytes
    """What the runtime's XLA optimized it to, a serialized HloModuleProto."""
    devices: int
    """How many it runs on."""
    options: bytes
    """How the host compiles it: a CompileOptionsProto, without these devices' numbers."""
    time_limit: float
    """Seconds that the host waits for the answer: more, the longer the runtime took to compile the program."""
    deadline: float
    """Until when, as time.monotonic() counts."""


@dataclass(frozen=True)
class Channel:
    """The rewriter's end of the socket pair."""

    socket: socket.socket

    @classmethod
    def inherited(cls) -> Channel:
        """The channel that the plugin left this process."""
        os.set_inheritable(_SOCKET, False)
        return cls(socket.socket(fileno=_SOCKET))

    def say_hello(self) -> None:
        """Give the plugin a descriptor of this process, by which it can end it."""
        process = os.pidfd_open(os.getpid())
        self._send(HELLO, 0, process)

    def receive(self) -> CompileRequest | None:
        """The next program; None: the host has ended."""
        header, files, _, _ = socket.recv_fds(self.socket, _HEADER.size, 1)
        if not header:
            return None
        version, kind, size = _HEADER.unpack(header)
        with open(files[0], "rb") as file:
            file.seek(0)
            content = file.read()
        if (version, kind) != (_VERSION, REWRITE):
            raise ValueError("the plugin is another version's")
        # The module, then lines.
        lines = dict(line.split("=", 1) for line in content[size:].decode().splitlines())
        devices, options = int(lines["devices"]), bytes.fromhex(lines["options"])
        time_limit, deadline = (int(lines[name]) / 1000 for name in ("time_limit", "deadline"))
        return CompileRequest(content[:size], devices, options, time_limit, deadline)

    def answer_unchanged(self) -> None:
        """Answer that nothing is dispatched."""
        self._answer(UNCHANGED, b"", "")

    def answer_rewritten(self, module: bytes, libraries: str) -> None:
        """Answer with a module; `libraries` has lines `name=value` for what its calls need."""
        self._answer(REWRITTEN, module, libraries)

    def answer_failed(self, sentence: str) -> None:
        """Answer why the module is left to stock."""
        self._answer(FAILED, b"", sentence)

    def _answer(self, kind: int, module: bytes, text: str) -> None:
        with open(os.memfd_create("hlo_dispatch_answer"), "wb", buffering=0) as file:
            for part in (module, text.encode()):
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
            self._send(kind, len(module), file.fileno())

    def _send(self, kind: int, size: int, file: int) -> None:
        socket.send_fds(self.socket, [_HEADER.pack(_VERSION, kind, size)], [file])
