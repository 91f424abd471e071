"""Native (non-SYCL) engine inside oneDNN's SYCL build: when it is used, and when it is not."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from interposed import OVER_SYCL, child, interposed, is_sycl_build

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries

pytestmark = [pytest.mark.any_python]

TESTED = "3.13."
"""The releases whose native engine is used by default."""


@pytest.fixture(autouse=True)
def _sycl_build() -> None:
    onednn = libraries.onednn()
    assert not isinstance(onednn, Unavailable), onednn
    if not onednn.version.startswith(TESTED) or not is_sycl_build():
        pytest.skip(f"oneDNN {onednn.version} at {onednn.path} is no SYCL build of a release that was tested")


ASK = """
from pathlib import Path
from hlo_dispatch.vendor import kernels, libraries
found = libraries.onednn()
assert hasattr(found, "path"), found.sentence
kernels.warm_up()
maps = Path("/proc/self/maps").read_text()
print(found.runtime, "libintelocl" in maps, found.note)
"""


def asked(**variables: str) -> str:
    done = child(ASK, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(**variables: str) -> str:
    """The one line that says why there is no oneDNN."""
    done = child(ASK, **variables)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("AssertionError: ")
    return line.removeprefix("AssertionError: ")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of oneDNN's own file, with what it needs beside it."""
    onednn = libraries.onednn()
    assert not isinstance(onednn, Unavailable), onednn
    for file in onednn.path.parent.glob("*.so*"):
        if file.name != onednn.path.name:
            (tmp_path / file.name).symlink_to(file)
    return Path(shutil.copyfile(onednn.path, tmp_path / onednn.path.name))


def test_neither_sycl_nor_opencl_is_started() -> None:
    assert asked() == "tbb False"


def test_the_public_engine_on_demand() -> None:
    assert asked(**OVER_SYCL) == "sycl True"


def test_another_value_is_said_to_be_wrong() -> None:
    sentence = "HLO_DISPATCH_ONEDNN_RUNTIME is 'opencl'; set it to sycl or tbb, or unset it"
    assert refused(HLO_DISPATCH_ONEDNN_RUNTIME="opencl") == sentence


def test_a_stripped_library_has_no_native_engine(copy: Path) -> None:
    subprocess.run(["strip", str(copy)], check=True)
    why = f"{copy} has no table of its symbols: it was stripped"
    named = {"HLO_DISPATCH_ONEDNN_LIBRARY": str(copy)}
    assert asked(**named) == f"sycl True over TBB it would be faster, but {why}"
    sentence = refused(HLO_DISPATCH_ONEDNN_RUNTIME="tbb", **named)
    assert sentence.startswith("HLO_DISPATCH_ONEDNN_RUNTIME demands tbb, but oneDNN 3.13.")
    assert sentence.endswith(f"{why}; unset it")


def test_interposed_functions_are_not_bypassed(tmp_path: Path) -> None:
    watching = """
    extern "C" int dnnl_stream_wait(void* stream) {
      return reinterpret_cast<int (*)(void*)>(dlsym(RTLD_NEXT, "dnnl_stream_wait"))(stream);
    }"""
    library = interposed(tmp_path, "#include <dlfcn.h>\n" + watching)
    runtime, _, note = asked(HLO_DISPATCH_ONEDNN_LIBRARY=str(library)).split(" ", 2)
    assert runtime == "sycl"
    assert note.endswith(" comes from another file than its others")


SECTIONS_AT, SECTION_COUNT_AT = 40, 60
"""Where an ELF file's header says where its section headers are, and how many."""
SECTION_BYTES, SYMBOL_TABLE, EXECUTABLE = 64, 2, 4


def number(data: bytearray, offset: int, form: str) -> int:
    return struct.unpack_from(form, data, offset)[0]


def symbols_header(data: bytearray) -> int:
    """Where the section header of the symbol table is."""
    first, count = number(data, SECTIONS_AT, "<Q"), number(data, SECTION_COUNT_AT, "<H")
    places = (first + SECTION_BYTES * i for i in range(count))
    return next(place for place in places if number(data, place + 4, "<I") == SYMBOL_TABLE)


def sections_nowhere(data: bytearray) -> None:
    struct.pack_into("<Q", data, SECTIONS_AT, 2**64 - 128)


def sections_askew(data: bytearray) -> None:
    struct.pack_into("<Q", data, SECTIONS_AT, number(data, SECTIONS_AT, "<Q") + 1)


def too_many_sections(data: bytearray) -> None:
    struct.pack_into("<H", data, SECTION_COUNT_AT, 2**16 - 1)


def names_of_no_section(data: bytearray) -> None:
    struct.pack_into("<I", data, symbols_header(data) + 40, 2**32 - 1)


def symbols_without_end(data: bytearray) -> None:
    struct.pack_into("<Q", data, symbols_header(data) + 32, 2**64 - 1)


def symbols_of_something_else(data: bytearray) -> None:
    """The table begins elsewhere: names and addresses are arbitrary bytes."""
    place = symbols_header(data) + 24
    struct.pack_into("<Q", data, place, number(data, place, "<Q") - 1000 * 8)


def names_elsewhere(data: bytearray) -> None:
    first = number(data, SECTIONS_AT, "<Q")
    names = first + SECTION_BYTES * number(data, symbols_header(data) + 40, "<I")
    struct.pack_into("<Q", data, names + 24, number(data, names + 24, "<Q") - 12345)


@pytest.mark.parametrize(
    "damage",
    [
        sections_nowhere,
        sections_askew,
        too_many_sections,
        names_of_no_section,
        symbols_without_end,
        symbols_of_something_else,
        names_elsewhere,
    ],
)
def test_a_damaged_table_is_no_table(copy: Path, damage: Callable[[bytearray], None]) -> None:
    data = bytearray(copy.read_bytes())
    damage(data)
    copy.write_bytes(data)
    runtime, _, note = asked(HLO_DISPATCH_ONEDNN_LIBRARY=str(copy)).split(" ", 2)
    assert runtime == "sycl"
    assert str(copy) in note


REPLACED = """
import ctypes, sys
from pathlib import Path
from hlo_dispatch.process import native
path, other = map(Path, sys.argv[1:])
handle = ctypes.CDLL(str(path))  # as whoever uses oneDNN before us
path.unlink()
other.rename(path)
print(native.native().load_onednn(str(path), False)[1:])
"""


def test_a_file_that_was_replaced_after_it_was_loaded(copy: Path) -> None:
    other = copy.with_name("other")
    data = bytearray(copy.read_bytes())
    first, count = number(data, SECTIONS_AT, "<Q"), number(data, SECTION_COUNT_AT, "<H")
    for header in range(first, first + SECTION_BYTES * count, SECTION_BYTES):
        if number(data, header + 8, "<Q") & EXECUTABLE:
            place, size = struct.unpack_from("<QQ", data, header + 24)
            data[place : place + size] = bytes(size)
    other.write_bytes(data)
    done = child(REPLACED, str(copy), str(other), LD_LIBRARY_PATH=str(copy.parent))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("('sycl', ")
    assert "is not the file that was loaded: another _ZN" in done.stdout


THREADS = """
from concurrent.futures import ThreadPoolExecutor
import jax, numpy as np
import hlo_dispatch
from hlo_dispatch.vendor import libraries
assert libraries.onednn().runtime == "tbb"

def work(rows):
    random = np.random.default_rng()
    a, b = random.standard_normal((rows, 65), "f"), random.standard_normal((65, 67), "f")
    product = jax.jit(lambda a, b: jax.nn.relu(a @ b)).lower(a, b).compile()
    assert "hlo_dispatch.onednn.matmul" in product.as_text()
    right = np.maximum(a.astype("d") @ b.astype("d"), 0)
    for _ in range(100):
        assert np.abs(np.asarray(product(a, b)) - right).max() < 1e-3

with hlo_dispatch.enabled(policy="always"), ThreadPoolExecutor(4) as pool:
    list(pool.map(work, range(2, 33)))
"""


def test_many_programs_in_many_threads(tmp_path: Path) -> None:
    done = child(THREADS, HLO_DISPATCH_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr


GROWTH = """
import os, time
from hlo_dispatch import _kernels
from hlo_dispatch.vendor import kernels, libraries, registry
assert libraries.onednn().runtime == "tbb"
kernels.warm_up()
square = {"dims": [30, 30], "strides": [30, 1], "type": "f32"}
spec = {"abi": registry.abi(), "library": libraries.onednn().version, "scratch": 1 << 20}
spec |= {f"{role}_{key}": value for role in ("src", "weights", "dst") for key, value in square.items()}

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def calls(count):
    for _ in range(count):
        _kernels.run_raw(_kernels.raw_call("hlo_dispatch.onednn.matmul", spec, []), 1)

calls(300)
before = resident()
calls(6000)
print((resident() - before) / 6000)
"""


def test_memory_objects_go_with_their_calls() -> None:
    """A call has four of them, each of several hundred bytes."""
    done = child(GROWTH)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 500
