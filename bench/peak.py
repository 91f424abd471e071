"""Peak of this machine, measured: arithmetic by large matrix products, memory bandwidth by long additions."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SIZES = (1024, 2048)
DTYPES = ("f32", "bf16", "f16", "f64")
_ELEMENTS = 32 * 2**20  # of 4 bytes, for each of three arrays: far beyond any cache
_REPEATS = 5


def measure() -> dict[str, Any]:
    """`arithmetic` by element type in FLOP/s, the best that XLA or oneDNN reaches; `bandwidth` in bytes/s."""
    return {"arithmetic": {dtype: arithmetic(dtype) for dtype in DTYPES}, "bandwidth": bandwidth()}


def arithmetic(dtype: str) -> float:
    """FLOP/s of the fastest square product."""
    from hlo_dispatch.bench.cases import make_case
    from hlo_dispatch.bench.jax_worker import prepare

    best = 0.0
    for size in SIZES:
        if dtype == "f64":
            best = max(best, _of_numpy(size))
            continue
        case = make_case("matmul", f"m={size},k={size},n={size}", dtype)
        calls, _ = prepare(case, ("stock", "raw"))
        best = max(best, *(case.work / _shortest(call) for name, call in calls.items() if name in ("stock", "raw")))
    return best


def _of_numpy(size: int) -> float:
    """XLA's f64 product is one thread of generated code; NumPy's BLAS is what f64 can do."""
    import numpy as np

    matrix = np.random.default_rng(0).standard_normal((size, size))
    return 2.0 * size**3 / _shortest(lambda: matrix @ matrix)


def bandwidth() -> float:
    """Bytes/s of `c = a + b` on arrays larger than all caches, as STREAM counts them: two reads and a write."""
    import numpy as np

    threads = len(os.sched_getaffinity(0))
    a, b, c = (np.full(_ELEMENTS, value, np.float32) for value in (1, 2, 0))
    parts = [slice(n * _ELEMENTS // threads, (n + 1) * _ELEMENTS // threads) for n in range(threads)]

    def add(part: slice) -> None:
        np.add(a[part], b[part], out=c[part])

    with ThreadPoolExecutor(threads) as pool:
        return 3 * a.nbytes / _shortest(lambda: list(pool.map(add, parts)))


def read_stream(size: int) -> Callable[[], object]:
    """A call that reads so many bytes on all processors, and writes none."""
    import numpy as np

    threads = len(os.sched_getaffinity(0))
    parts = np.array_split(np.ones(size // 4, np.int32), threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.max, parts))


def _shortest(call: Callable[[], object]) -> float:
    times = []
    call()
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)
