"""Attention over many tokens, memory and seconds: `python -m bench.long_attention [--tokens 16384] [--heads 8]`.

Stock and dispatched have a process each. Memory is what a process grew by at most from where the executable and its
operands are there, the result among it. Some rows of each result are compared with float64 NumPy.
"""

# pyright: basic, reportOperatorIssue=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import rich
from rich.table import Table

from hlo_dispatch.bench.header import header

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("stock", "dispatched")
ROWS = 5
"""So many queries are compared with float64."""
FAR = {"f32": 1e-5, "bf16": 2e-2, "f16": 4e-3}
"""How far from it a result may be, relative to the largest value."""


def main() -> None:
    """Measure and print; `--way` is how the command calls itself."""
    parser = argparse.ArgumentParser(prog="python -m bench.long_attention", description=__doc__)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--dtype", choices=FAR, default="f32")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(run(given)))
        return
    print("\n".join(header()))
    title = f"{given.tokens} tokens, {given.heads} heads of {given.head_size}, {given.dtype}"
    table = Table("", "memory, MB", "seconds", "from float64", title=title + (", causal" if given.causal else ""))
    for way in WAYS:
        words = [sys.executable, "-m", "hlo_dispatch.bench.long_attention", *sys.argv[1:], "--way", way]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        table.add_row(way, f"{found['grown'] / 1e6:,.0f}", f"{found['seconds']:.3g}", f"{found['off']:.1e}")
    rich.print(table)


def run(given: argparse.Namespace) -> dict[str, float]:
    """One way, in this process: bytes that it grew by, seconds of a call, and the distance from float64."""
    import jax
    import jax.numpy as jnp

    import hlo_dispatch
    from hlo_dispatch.bench.models.process import forget_peak, status

    random = np.random.default_rng()
    shape = (1, given.tokens, given.heads, given.head_size)
    dtype = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[given.dtype]
    inputs = [jnp.asarray(random.standard_normal(shape, np.float32), dtype) for _ in range(3)]
    jax.block_until_ready(inputs)
    program = jax.jit(lambda *qkv: jax.nn.dot_product_attention(*qkv, is_causal=given.causal))
    with hlo_dispatch.enabled(policy="always" if given.way == "dispatched" else "never"):
        compiled = program.lower(*inputs).compile()
    before = forget_peak()
    samples, result = [], None
    for _ in range(given.calls):
        begin = time.perf_counter()
        result = jax.block_until_ready(compiled(*inputs))
        samples.append(time.perf_counter() - begin)
    grown = status("VmHWM") - before
    if ("own.attention" in compiled.as_text()) is not (given.way == "dispatched"):
        raise SystemExit(f"bench.long_attention: {given.way}: the attention is {'not ' * (given.way != 'stock')}a call")
    off = distance(inputs, result, is_causal=given.causal)
    if not off <= FAR[given.dtype]:
        raise SystemExit(f"bench.long_attention: {given.way}: the result is {off:.1e} from float64")
    return {"grown": grown, "seconds": statistics.median(samples), "off": off}


def distance(inputs: list[Any], result: Any, *, is_causal: bool) -> float:
    """Error of some rows of the result against float64, relative to their largest value."""
    tokens, size = inputs[0].shape[1], inputs[0].shape[3]
    rows = np.unique(np.linspace(0, tokens - 1, ROWS).astype(int))
    query, key, value = (np.asarray(array, np.float64)[0] for array in (inputs[0][:, rows], *inputs[1:]))
    scores = np.einsum("thd,shd->hts", query, key) / np.sqrt(size)
    if is_causal:
        scores = np.where(rows[:, None] >= np.arange(tokens), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("hts,shd->thd", powers / powers.sum(-1, keepdims=True), value)
    got = np.asarray(result[0, rows], np.float64)
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


if __name__ == "__main__":
    main()
