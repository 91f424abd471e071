"""Programs in C++ around the loops of kernels/common, without XLA: compiled with a stand-in for its thread pool."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from pathlib import Path

COMMON = Path(__file__).parents[2] / "kernels" / "common"


def headers() -> Path:
    """The folder of oneTBB's headers, found as kernels/CMakeLists.txt finds it."""
    files = importlib.metadata.files("tbb-devel") or ()
    version = next(file for file in files if str(file).endswith("include/oneapi/tbb/version.h"))
    return Path(str(version.locate())).resolve().parents[2]


def compiled(folder: Path, program: str, pool: str = "", options: tuple[str, ...] = ()) -> Path:
    """The executable. `pool` stands in for XLA's interface; without it only oneTBB's loops are there."""
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    common = folder / "common"
    common.mkdir()
    # Quoted includes look beside the including file first: the loops' files are beside the pool.
    for pattern in ("tbb_*", "scheduling.*", *(["parallel.*", "idle_helpers.*"] if pool else [])):
        for path in COMMON.glob(pattern):
            shutil.copy(path, common / path.name)
    if pool:
        (common / "ffi.h").write_text(pool)
    command = [compiler, "-std=c++17", *options, "-x", "c++", "-", *map(str, common.glob("*.cc"))]
    command += ["-I", str(folder), "-isystem", str(headers()), "-pthread", "-ldl", "-o", str(folder / "program")]
    subprocess.run(command, input=program, text=True, check=True)
    return folder / "program"
