"""C interface of the native library: exports, versions, and registration with a host's XLA."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hlo_dispatch
from hlo_dispatch import kernels
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries, registry

pytestmark = pytest.mark.any_processor

HEADER = kernels.include_path() / "hlo_dispatch" / "kernels.h"


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(kernels.library_path()))
    for name in ("version", "library_path", "error_message", "own_version"):
        getattr(found, f"hlo_dispatch_{name}").restype = ctypes.c_char_p
    for name in ("load_onednn", "load_onemkl", "register", "wait"):
        getattr(found, f"hlo_dispatch_{name}").restype = ctypes.c_void_p
    found.hlo_dispatch_abi.restype = ctypes.c_int64
    return found


def taken(library: ctypes.CDLL, error: int | None) -> str:
    """The error's sentence; it is freed."""
    if error is None:
        return ""
    message = library.hlo_dispatch_error_message(ctypes.c_void_p(error)).decode()
    library.hlo_dispatch_error_free(ctypes.c_void_p(error))
    return message


def test_it_shows_what_the_header_says_and_nothing_else() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", kernels.library_path()], capture_output=True, text=True, check=True
    ).stdout
    shown = {line.split()[-1] for line in listed.splitlines()}
    declared = set(re.findall(r"^HLO_DISPATCH_EXPORT\b[^;(]*?\b(hlo_dispatch_\w+)\(", HEADER.read_text(), re.MULTILINE))
    assert len(declared) > 30
    assert shown == declared


def test_no_python_is_in_it() -> None:
    undefined = subprocess.run(["nm", "-D", "-u", kernels.library_path()], capture_output=True, text=True, check=True)
    assert not re.findall(r"\b_?Py\w+", undefined.stdout)
    needed = subprocess.run(["ldd", kernels.library_path()], capture_output=True, text=True, check=True).stdout
    assert "python" not in needed
    assert "not found" not in needed


def test_the_header_is_one_of_c(tmp_path: Path) -> None:
    """Nothing but C is in it, and a program in C is built against it and runs."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "the kernels were built, so there is a compiler"
    source = tmp_path / "version.c"
    source.write_text("""
        #include <stdio.h>
        #include "hlo_dispatch/kernels.h"
        int main(void) {
          printf("%d %s %zu\\n", hlo_dispatch_interface() == HLO_DISPATCH_INTERFACE, hlo_dispatch_version(),
                 hlo_dispatch_kernel_count());
          return 0;
        }
    """)
    program, path = tmp_path / "version", kernels.library_path()
    options = ["-std=c11", "-pedantic-errors", "-Wall", "-Werror", f"-I{kernels.include_path()}"]
    rest = [source, path, f"-Wl,-rpath,{path.parent}", "-o", program]
    subprocess.run([compiler, *options, *rest], check=True, capture_output=True, timeout=60)
    said = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert said == ["1", hlo_dispatch.__version__, str(len(registry.kernels()))]


def test_python_uses_the_same_one(library: ctypes.CDLL) -> None:
    assert Path(library.hlo_dispatch_library_path().decode()) == kernels.library_path()
    assert library.hlo_dispatch_abi() == registry.abi()
    assert library.hlo_dispatch_own_version().decode() == registry.own_version()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "hlo_dispatch_k" in line}
    assert mapped == {str(kernels.library_path())}
    # What Python loaded is loaded here: the same file once more is nothing new, another one is refused.
    onednn = libraries.onednn()
    assert not isinstance(onednn, Unavailable)
    assert taken(library, library.hlo_dispatch_load_onednn(str(onednn.path).encode(), 0, None)) == ""
    refused = taken(library, library.hlo_dispatch_load_onednn(b"/nowhere/libdnnl.so", 0, None))
    assert refused == f"this process already uses {onednn.path}; it cannot also load /nowhere/libdnnl.so"


class FakeXla:
    """A table of XLA's FFI functions, as far as registering goes, that remembers what was registered."""

    SLOTS = 18

    class Table(ctypes.Structure):
        _fields_ = (
            ("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p),
            ("version_size", ctypes.c_size_t), ("version_extension", ctypes.c_void_p),
            ("major", ctypes.c_int), ("minor", ctypes.c_int), ("internal", ctypes.c_void_p),
            ("slots", ctypes.c_void_p * 18),
        )  # fmt: skip

    def __init__(self, minor: int = 3, problem: bytes = b"") -> None:
        self.order: list[str] = []
        self.platforms: set[str] = set()
        self.destroyed = 0
        self.problem = ctypes.create_string_buffer(problem) if problem else None
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        # In the order of the table: error made, told, destroyed; handler; stream; type.
        self._kept = [
            function(f) for f in (self._unused, self._tell, self._destroy, self._handler, self._unused, self._type)
        ]
        self.table = self.Table(major=0, minor=minor)
        for i, kept in enumerate(self._kept):
            self.table.slots[i] = ctypes.cast(kept, ctypes.c_void_p)

    def _unused(self, _: int) -> None: ...

    def _tell(self, given: int) -> None:
        assert self.problem is not None
        words = (ctypes.c_void_p * 4).from_address(given)
        assert words[2] == 77
        words[3] = ctypes.addressof(self.problem)

    def _destroy(self, given: int) -> None:
        self.destroyed += 1

    def _text(self, given: int, word: int) -> str:
        words = (ctypes.c_void_p * 8).from_address(given)
        return ctypes.string_at(words[word], words[word + 1]).decode()

    def _handler(self, given: int) -> int | None:
        self.order.append(self._text(given, 2))
        self.platforms.add(self._text(given, 4))
        words = (ctypes.c_void_p * 11).from_address(given)
        assert words[6], "instantiate"
        assert words[9], "execute"
        assert not words[7]
        assert not words[8]
        return 77 if self.problem is not None else None

    def _type(self, given: int) -> None:
        self.order.append(self._text(given, 2))


def test_everything_is_registered_types_first(library: ctypes.CDLL) -> None:
    xla = FakeXla()
    assert taken(library, library.hlo_dispatch_register(ctypes.byref(xla.table), b"Host")) == ""
    targets = [kernel.target for kernel in registry.kernels().values()]
    types = xla.order[: len(xla.order) - len(targets)]
    assert len(types) == library.hlo_dispatch_state_type_count() > 0
    assert xla.order[len(types) :] == targets
    assert xla.platforms == {"Host"}


def test_an_xla_that_refuses_is_quoted(library: ctypes.CDLL) -> None:
    xla = FakeXla(problem=b"taken already")
    said = taken(library, library.hlo_dispatch_register(ctypes.byref(xla.table), b"Host"))
    assert re.fullmatch(r"hlo_dispatch\.[\w.]+ cannot be registered: taken already", said)
    assert xla.destroyed == 1


def test_an_xla_that_is_too_old_or_none(library: ctypes.CDLL) -> None:
    xla = FakeXla(minor=2)
    said = taken(library, library.hlo_dispatch_register(ctypes.byref(xla.table), b"Host"))
    assert said == "this XLA has FFI 0.2; 0.3 or a later 0.x is needed"
    assert not xla.order
    assert "no table" in taken(library, library.hlo_dispatch_register(None, b"Host"))


LOADING = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.hlo_dispatch_error_message.restype = ctypes.c_char_p
class Loaded(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("version", ctypes.c_char_p), ("runtime", ctypes.c_char_p)]
for name, more in (("onednn", (0,)), ("onemkl", ())):
    load = getattr(library, f"hlo_dispatch_load_{name}")
    load.restype, loaded = ctypes.c_void_p, Loaded()
    error = load(None, *more, ctypes.byref(loaded))
    print(library.hlo_dispatch_error_message(ctypes.c_void_p(error)).decode() if error else loaded.version.decode())
    print(loaded.path.decode() if not error else "")
"""


def alone(path: Path, **environment: str) -> list[str]:
    """In a process in which nothing of ours but the library is."""
    command = [sys.executable, "-S", "-c", LOADING, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.onemkl
def test_the_libraries_that_the_environment_names() -> None:
    onednn, mkl = libraries.onednn(), libraries.mkl()
    assert not isinstance(onednn, Unavailable)
    assert not isinstance(mkl, Unavailable)
    variables = {"HLO_DISPATCH_ONEDNN_LIBRARY": str(onednn.path), "HLO_DISPATCH_MKL_LIBRARY": str(mkl.path)}
    said = alone(kernels.library_path(), **variables)
    assert said == [onednn.version, str(onednn.path.resolve()), mkl.version, str(mkl.path.resolve())]


@pytest.mark.onemkl
def test_the_libraries_where_pip_puts_them(tmp_path: Path) -> None:
    """Three folders above the package's, as lib/ is above lib/python3.13/site-packages/hlo_dispatch."""
    onednn, mkl = libraries.onednn(), libraries.mkl()
    assert not isinstance(onednn, Unavailable)
    assert not isinstance(mkl, Unavailable)
    package = tmp_path / "lib" / "python" / "site-packages" / "hlo_dispatch"
    package.mkdir(parents=True)
    copy = shutil.copy(kernels.library_path(), package)
    for file in {*onednn.path.parent.glob("lib*.so*"), *mkl.path.parent.glob("lib*.so*")}:
        (tmp_path / "lib" / file.name).symlink_to(file)
    said = alone(copy)
    assert said[::2] == [onednn.version, mkl.version]
    assert said[1::2] == [str(tmp_path / "lib" / "libdnnl.so.3"), str(tmp_path / "lib" / "libmkl_rt.so.3")]


def test_libraries_that_are_nowhere(tmp_path: Path) -> None:
    copy = shutil.copy(kernels.library_path(), tmp_path)
    onednn, _, mkl, _ = alone(copy)
    assert onednn.startswith("libdnnl.so.3 cannot be loaded: ")
    assert onednn.endswith("; name its file in HLO_DISPATCH_ONEDNN_LIBRARY")
    assert mkl.startswith("libmkl_rt.so.3 cannot be loaded: ")
    onednn, *_ = alone(copy, HLO_DISPATCH_ONEDNN_LIBRARY="/nowhere.so")
    assert onednn.startswith("HLO_DISPATCH_ONEDNN_LIBRARY names /nowhere.so, which is not a file")
