"""Archive of saved programs: an uncompressed ZIP file whose arrays can be used where a mapping of the file has them.

An array's bytes begin at the offset that has its address modulo a page. Padding in the member's header puts them there.
"""

from __future__ import annotations

import mmap
import struct
import zipfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import numpy

PAGE, LARGE_PAGE = 4096, 2 << 20
"""oneMKL's prepacked weights must keep their address modulo the page size; on some processors modulo that of large
pages (kernels/onemkl/prepacked_alignment.h)."""
_HEADER = struct.Struct("<4s22xHH")
"""Of a member: its signature, and the lengths of its name and of the extra fields, which precede its bytes."""
_SIGNATURE = b"PK\3\4"
_ZIP64_BYTES = 20
"""Of the extra field with sizes in 64 bits."""
_FIELD = struct.Struct("<HH")
"""Of an extra field: its number and the length of what follows."""
_PADDING = 0xD935
"""Number of the extra field of alignment, as other writers have it."""


def write_aligned(archive: zipfile.ZipFile, file: IO[bytes], name: str, content: memoryview, offset: int) -> None:
    """Append a member whose bytes begin at `offset` modulo a page; `file` is the archive's."""
    begin = file.tell() + _HEADER.size + len(name.encode()) + _FIELD.size + _ZIP64_BYTES
    padding = (offset - begin) % PAGE
    info = zipfile.ZipInfo(name)
    info.extra = _FIELD.pack(_PADDING, padding) + bytes(padding)
    with archive.open(info, "w", force_zip64=True) as member:
        member.write(content)


class MappedArchive:
    """Members of an archive as views of its file, which stays mapped as long as a view of it exists."""

    def __init__(self, archive: zipfile.ZipFile, file: IO[bytes]) -> None:
        self._archive = archive
        self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def view(self, name: str) -> Any:
        """The bytes of a member, read-only.

        Raises:
            KeyError: there is none.
            ValueError: it is compressed, or does not lie in the file.
        """
        info = self._archive.getinfo(name)
        signature, *lengths = _HEADER.unpack_from(self._mapped, info.header_offset)
        begin = info.header_offset + _HEADER.size + sum(lengths)
        is_stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if signature != _SIGNATURE or not is_stored or begin + info.file_size > len(self._mapped):
            raise ValueError(f"{name} is not where the archive says, or is compressed")
        return numpy.frombuffer(memoryview(self._mapped)[begin : begin + info.file_size], numpy.uint8)

    def read(self, name: str) -> bytes:
        """A copy of a member's bytes, compared with its checksum."""
        return self._archive.read(name)

    def check(self, names: Iterable[str]) -> None:
        """Compare members with their checksums, which brings them into memory.

        Raises:
            ValueError: one is another.
        """
        views = {name: self.view(name) for name in names}
        with ThreadPoolExecutor() as pool:
            for name, found in zip(views, pool.map(zlib.crc32, views.values()), strict=True):
                if found != self._archive.getinfo(name).CRC:
                    raise ValueError(f"Bad CRC-32 for file {name!r}")


def aligned_memory(size: int, offset: int = 0, alignment: int = PAGE) -> Any:
    """So many bytes, at an address that is `offset` modulo `alignment`."""
    memory = numpy.empty(size + alignment, numpy.uint8)
    begin = (offset - memory.ctypes.data) % alignment
    return memory[begin : begin + size]


def placed(view: Any, offset: int, alignment: int) -> Any:
    """The bytes at an address that is `offset` modulo `alignment`: themselves where they are there, else a copy."""
    if view.size and view.ctypes.data % alignment == offset % alignment:
        return view
    copy = aligned_memory(view.size, offset, alignment)
    copy[...] = view
    return copy
