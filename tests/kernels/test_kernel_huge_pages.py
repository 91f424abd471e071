"""Huge-page advice (kernels/common/huge_pages.cc): which bytes of a buffer are advised, with a system that refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hlo_dispatch.process.large_pages import FOLDER

pytestmark = pytest.mark.any_processor

KERNELS = Path(__file__).parents[2] / "kernels"
PAGE = 2 << 20
BEGIN = 1 << 40
"""Of a huge page. Nothing is mapped there: a buffer is advised, and never read or written."""
# In the place of the system: it says what it is asked for, and refuses.
PROGRAM = """
#include <sys/mman.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include "common/huge_pages.h"
extern "C" int madvise(void* begin, size_t bytes, int advice) noexcept {
  if (advice == MADV_HUGEPAGE) std::printf("%zu %zu\\n", reinterpret_cast<size_t>(begin), bytes);
  errno = ENOMEM;
  return -1;
}
int main(int, char** arguments) {
  hlo_dispatch::AdviseHugePages(reinterpret_cast<void*>(std::strtoull(arguments[1], nullptr, 10)),
                                std::strtoll(arguments[2], nullptr, 10));
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    made = tmp_path_factory.mktemp("huge_pages") / "program"
    command = [compiler, "-std=c++17", "-I", str(KERNELS), "-x", "c++", "-", str(KERNELS / "common" / "huge_pages.cc")]
    subprocess.run([*command, "-o", str(made)], input=PROGRAM, text=True, check=True)
    return made


@pytest.mark.parametrize(
    ("first", "size", "advised"),
    [
        (0, 16 << 20, [(0, 16 << 20)]),
        (16, 16 << 20, [(PAGE, 14 << 20)]),
        (PAGE - 64, (16 << 20) + 64, [(PAGE, 16 << 20)]),
        (4096, 600_000_000, [(PAGE, 285 * PAGE)]),
        (0, (16 << 20) - 1, []),
        (0, 0, []),
    ],
    ids=["whole", "off by malloc's header", "off to the next", "odd", "small", "empty"],
)
def test_whole_pages_inside_of_a_buffer(program: Path, first: int, size: int, advised: list[tuple[int, int]]) -> None:
    if not FOLDER.is_dir() or "[never]" in (FOLDER / "enabled").read_text():
        advised = []
    elif int((FOLDER / "hpage_pmd_size").read_text()) != PAGE:
        pytest.skip("huge pages have another size here")
    done = subprocess.run([program, str(BEGIN + first), str(size)], capture_output=True, text=True, check=True)
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert found == [(BEGIN + begin, length) for begin, length in advised]
