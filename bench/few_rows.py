"""Products of few rows against memory and arithmetic: `python -m bench.few_rows [--rows 1 8] [--output FILE]`.

Each program multiplies the same rows with all layers of a model's weights, which no cache holds, as a token of a
language model does: one product for each layer, whose result is added to what came before. Weights are f32, bf16, s8
with a scale for each column, s8 or s4 with a scale for each column and every GROUP of what is summed up; stacked and
read by a scan, or an array for each layer. In turns, in one process: XLA's product, oneDNN's, our own, and a stream
that only reads as many bytes. `share` is the larger of what the stream and what the arithmetic takes, over what ours
takes.
"""

# pyright: basic, reportOperatorIssue=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.peak import arithmetic, read_stream
from hlo_dispatch.demo.timing import interleaved

SHAPES = ((1024, 1024), (1024, 256), (1024, 2816), (2816, 1024), (1024, 32000))
"""What is summed up, and columns: a Llama of 0.29e9 parameters."""
TYPES = {"f32": 4.0, "bf16": 2.0, "s8": 1.0, "s8 groups": 1 + 4 / 64, "s4 groups": 0.5 + 4 / 64}
"""Weights, and bytes that each one takes with its share of the scales."""
GROUP = 64
"""How many weights that are summed up have one scale, where there are groups."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CACHE_IF_UNKNOWN = 64 << 20
LAYERS_APART = 24
"""Arrays of their own, for each of which a program has a call."""
MOST_BYTES = 256 << 20
"""Of all layers together, where twice the caches is more."""
TABLE_WIDTH = 140
"""In characters, wherever it is printed to."""
_FORCED = """version: 1
anchors:
  by_one_kernel:
    opcode: dot
    reading: product
    priority: 1
    kernel: {kernel}
    formula: dst = src . weights
    epilogues: {{activations: all, binaries: all, longest_chain: 32}}
    dtypes: [f32, bf16]
    numerics:
      f32: {{tolerance: 1e-5, why: sums in another order}}
      bf16: {{tolerance: 2e-2, why: sums in another order}}
    origin: bench.few_rows
"""
OURS = "own.narrow_product"


class ProductCase(NamedTuple):
    """One program."""

    rows: int
    shape: tuple[int, int]
    kind: str
    by_column: bool
    is_stacked: bool

    @property
    def bytes_of_layer(self) -> float:
        return self.shape[0] * self.shape[1] * TYPES[self.kind]


def cache_bytes() -> int:
    """Size of the processor's largest cache."""
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size.removesuffix("K")) << 10 for size in sizes if size.endswith("K")), default=CACHE_IF_UNKNOWN)


def product(x: Any, layer: Sequence[Any], *, by_column: bool) -> Any:
    """Of rows and one layer's weights: an array, or integers and scales (groups, columns) or (columns, groups)."""
    weights, *scales = layer
    if scales and by_column:
        columns, groups = scales[0].shape
        weights = (weights.reshape(columns, groups, -1).astype(x.dtype) * scales[0][:, :, None]).reshape(weights.shape)
    elif scales:
        groups, columns = scales[0].shape
        weights = (weights.reshape(groups, -1, columns).astype(x.dtype) * scales[0][:, None]).reshape(weights.shape)
    return x @ (weights.T if by_column else weights)


def program(*, by_column: bool, is_stacked: bool) -> Callable[..., Any]:
    """(rows, start, layers) -> start plus all products."""

    def run(x: Any, start: Any, layers: Any) -> Any:
        def add(total: Any, layer: Any) -> tuple[Any, None]:
            return total + product(x, layer, by_column=by_column), None

        if is_stacked:
            return jax.lax.scan(add, start, layers)[0]
        for layer in layers:
            start, _ = add(start, layer)
        return start

    return run


def weights_of(case: ProductCase, layers: int) -> tuple[list[Any], np.ndarray]:
    """The arrays of all layers, stacked, and the first layer's weights in float64."""
    random = np.random.default_rng(0)
    inner, columns = case.shape
    dims = (columns, inner) if case.by_column else (inner, columns)
    name = case.kind.split()[0]
    if name in ("f32", "bf16"):
        wide = random.standard_normal((layers, *dims), np.float32) / inner**0.5
        stack = jnp.asarray(wide, {"f32": "float32", "bf16": "bfloat16"}[name])
        return [stack], np.asarray(stack[0], "float64")
    largest = {"s8": 127, "s4": 7}[name]
    integers = random.integers(-largest, largest + 1, (layers, *dims), np.int8)
    groups = inner // GROUP if case.kind.endswith("groups") else 1
    of_scales = (columns, groups) if case.by_column else (groups, columns)
    scales = np.asarray(random.random((layers, *of_scales)) / largest / inner**0.5, "float32")
    axis = 1 if case.by_column else 0
    exact = integers[0] * np.repeat(scales[0].astype("float64"), inner // groups, axis)
    return [jnp.asarray(integers, {"s8": "int8", "s4": "int4"}[name]), jnp.asarray(scales)], exact


def measured(case: ProductCase, *, peak: float, seconds: float, folder: Path) -> dict[str, float]:
    """Median seconds of a layer by each side, and the share; raises AssertionError where ours is wrong."""
    layers = int(min(2 * cache_bytes(), MOST_BYTES) / case.bytes_of_layer) + 3 if case.is_stacked else LAYERS_APART
    stacks, exact = weights_of(case, layers)
    dtype = "bfloat16" if case.kind == "bf16" else "float32"
    x = jnp.asarray(np.random.default_rng(1).standard_normal((case.rows, case.shape[0])), dtype)
    start = jnp.zeros((case.rows, case.shape[1]), dtype)
    held = tuple(stacks) if case.is_stacked else [tuple(stack[n] for stack in stacks) for n in range(layers)]
    function = jax.jit(program(by_column=case.by_column, is_stacked=case.is_stacked))
    first = tuple(stack[:1] for stack in stacks) if case.is_stacked else held[:1]
    sides: dict[str, Callable[[], object]] = {}
    for side, kernel in {"stock": "", "oneDNN": "onednn.matmul", "ours": OURS}.items():
        if side == "oneDNN" and len(stacks) > 1:
            continue
        table = folder / "forced.yaml"
        table.write_text(_FORCED.format(kernel=kernel))
        jax.clear_caches()
        with hlo_dispatch.enabled(policy="always" if kernel else "never", tables=[table] if kernel else []):
            call = function.lower(x, start, held).compile()
            one = function.lower(x, start, first).compile()
        assert kernel in call.as_text(), f"it was not dispatched to {kernel}"
        if side == "ours":
            wide = np.asarray(x, "float64") @ (exact.T if case.by_column else exact)
            worst = np.abs(np.asarray(one(x, start, first), "float64") - wide).max() / np.abs(wide).max()
            assert worst <= (1e-2 if case.kind == "bf16" else 1e-5), f"it is wrong by {worst:.1g}"
        sides[side] = lambda call=call: jax.block_until_ready(call(x, start, held))
    total = round(layers * case.bytes_of_layer)
    sides["stream"] = read_stream(total)
    found = {side: timing.median / layers for side, timing in interleaved(sides, seconds=seconds).items()}
    at_peak = 2.0 * case.rows * case.shape[0] * case.shape[1] / peak
    return found | {"share": max(found["stream"], at_peak) / found["ours"]}


def main() -> None:
    """Measure, print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.few_rows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--kinds", nargs="*", choices=TYPES, default=list(TYPES), help="of weights")
    parser.add_argument("--shapes", nargs="*", default=[f"{inner}x{columns}" for inner, columns in SHAPES])
    parser.add_argument("--stacked", action="store_true", help="stacked weights only")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    lines = header()
    print(*lines, sep="\n")
    peak = arithmetic("f32")
    shapes = [(int(inner), int(columns)) for inner, _, columns in (shape.partition("x") for shape in options.shapes)]
    shown = Table("rows", "weights", "of", "layers", "stock", "oneDNN", "ours", "stream", "GB/s", "share", title="µs")
    record: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        stacked = (True,) if options.stacked else (True, False)
        cases = itertools.product(options.rows, shapes, options.kinds, (False, True), stacked)
        for case in itertools.starmap(ProductCase, cases):
            found = measured(case, peak=peak, seconds=options.seconds, folder=Path(folder))
            record.append({**case._asdict(), "seconds": found})
            sides = ("stock", "oneDNN", "ours", "stream")
            times = [f"{found[side] * 1e6:.0f}" if side in found else "" for side in sides]
            order = "(out, in)" if case.by_column else "(in, out)"
            rate = f"{case.bytes_of_layer / found['ours'] / 1e9:.1f}"
            shown.add_row(str(case.rows), f"{case.shape[0]}x{case.shape[1]} {order}", case.kind,
                          "stacked" if case.is_stacked else "apart", *times, rate, f"{found['share']:.2f}")  # fmt: skip
    Console(width=TABLE_WIDTH).print(shown)
    if options.output is not None:
        options.output.write_text(json.dumps({"header": lines, "peak": peak, "cases": record}, indent=1))


if __name__ == "__main__":
    main()
