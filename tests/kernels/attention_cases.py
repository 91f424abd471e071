"""Some attentions of every kind, and whether they are right, in this process: for ISA caps.

`python attention_cases.py` prints the implementation, how far memory grew, and what was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from attention_calls import DTYPES, AttentionCall

SIZES = (
    ((), 1, 1, 1, 1), ((), 5, 7, 3, 9), ((2, 3), 33, 77, 40, 40), ((2,), 130, 197, 64, 64), ((1,), 67, 600, 80, 33),
    ((3,), 1, 700, 64, 64), ((2,), 7, 40, 256, 100), ((1, 1, 2, 1), 50, 65, 17, 130),
)  # fmt: skip


def cases() -> Iterator[AttentionCall]:
    random = np.random.default_rng(0)

    def values(*shape: int, dtype: str) -> np.ndarray:
        return random.standard_normal(shape).astype(DTYPES[dtype])

    for dtype in DTYPES:
        for batch, queries, keys, depth, width in SIZES:
            for kind in range(3):
                sizes = (queries, depth), (keys, depth), (keys, width)
                call = AttentionCall(*(values(*batch, *size, dtype=dtype) for size in sizes)).scale(depth**-0.5)
                if kind == 1:
                    call.causal(keys - queries, -1e30)
                if kind == 2:
                    call.add(values(queries, keys, dtype=dtype)).softcap(5.0).window(queries + 9, -1e9)
                    call.select(random.random((keys,)) < 0.7, -1e9)
                yield call


def most_memory() -> int:
    """Kilobytes that this process has ever had."""
    found = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(found[0].split()[1])


def long_attention(tokens: int) -> int:
    """Kilobytes by which so many tokens made this process larger, besides operands and results."""
    query = np.ones((tokens, 32), np.float32)
    call = AttentionCall(query, query, query)
    call.compiled()(*call.buffers()).block_until_ready()  # everything is compiled and started
    before = most_memory()
    call.compiled()(*call.buffers()).block_until_ready()
    return most_memory() - before


def main() -> None:
    from call_worker import register

    jax.config.update("jax_enable_x64", True)
    register()
    made = list(cases())
    print(made[-1].planned().implementation)
    print(long_attention(8192))
    for number, call in enumerate(made):
        if wrong := call.wrong():
            print(f"case {number}: {wrong}")


if __name__ == "__main__":
    main()
