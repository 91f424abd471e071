"""ResNet50 in integers of eight bits: `python -m bench.quantized [--batch 1 8] [--output FILE]`.

In turns, in one process: stock XLA, ours frozen, and OpenVINO's int8 and f32 of the same network (Keras's, quantized by
nncf with random images), where `pip install openvino nncf torch` brought those. Weights and scales of ours are random;
every convolution reads integers and gives integers, residuals included, as OpenVINO's do. Results of ours are compared
with stock's, number by number.
"""

# pyright: basic, reportMissingImports=false
# jax has no complete type hints.
from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich
from rich.table import Table

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo.timing import interleaved

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks of each, and channels."""
CLASSES, SIZE = 1000, 224
RESIDUAL, STEP = 0.7, 0.8
"""Scales of what is added, and of what is rounded."""
_CALIBRATING = 8


def weights(random: np.random.Generator) -> dict[str, Any]:
    """Random: integers of all sizes, scales that keep results in their range, a bias for each channel."""

    def convolution(window: int, inputs: int, outputs: int) -> dict[str, Any]:
        integers = random.integers(-127, 128, (window, window, inputs, outputs))
        scales = (random.random(outputs) + 0.5) * 24 / (74 * 74 * window * inputs**0.5)
        return {"w": jnp.asarray(integers, "int8"), "scale": jnp.asarray(scales, "float32"),
                "bias": jnp.asarray(5 * random.standard_normal(outputs), "float32")}  # fmt: skip

    made: dict[str, Any] = {"stem": convolution(7, 3, 64)}
    inputs = 64
    for stage, (blocks, channels) in enumerate(STAGES):
        for block in range(blocks):
            parts = {"in": (1, inputs, channels), "middle": (3, channels, channels), "out": (1, channels, 4 * channels)}
            if block == 0:
                parts["project"] = (1, inputs, 4 * channels)
            made[f"{stage}.{block}"] = {name: convolution(*sizes) for name, sizes in parts.items()}
            inputs = 4 * channels
    made["classes"] = jnp.asarray(random.standard_normal((inputs, CLASSES)) / 50, "float32")
    return made


def network(p: Any, images: Any) -> Any:
    """Keras's ResNet50, whose first convolution of a stage takes the steps: f32 in, f32 out, s8 between."""
    x = _quantized(30 * images)
    x = _quantized(jax.nn.relu(_convolved(p["stem"], x, 2)))
    edges = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = jax.lax.reduce_window(x, jnp.int8(-128), jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), edges)
    for stage, (blocks, _) in enumerate(STAGES):
        for number in range(blocks):
            block, step = p[f"{stage}.{number}"], 2 if stage and not number else 1
            y = _quantized(jax.nn.relu(_convolved(block["in"], x, step)))
            y = _quantized(jax.nn.relu(_convolved(block["middle"], y)))
            kept = _quantized(_convolved(block["project"], x, step)) if "project" in block else x
            y = _convolved(block["out"], y) + RESIDUAL * kept.astype(jnp.float32)
            x = _quantized(STEP * jax.nn.relu(y))
    return jnp.mean(x.astype(jnp.float32), (1, 2)) @ p["classes"]


def _convolved(p: Any, x: Any, step: int = 1) -> Any:
    edge = p["w"].shape[0] // 2
    sums = jax.lax.conv_general_dilated(
        x, p["w"], (step, step), [(edge, edge)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.int32,
    )  # fmt: skip
    return sums.astype(jnp.float32) * p["scale"] + p["bias"]


def _quantized(y: Any) -> Any:
    return jnp.clip(jnp.round(y), -128, 127).astype(jnp.int8)


def in_openvino(batch: int, *, integers: bool) -> Callable[[], object] | None:
    """A call of OpenVINO's; None where it, nncf or torch is not installed."""
    try:
        import nncf
        import openvino
        import torch

        from hlo_dispatch.bench.models import in_torch
        from hlo_dispatch.bench.models.peers import called_by_openvino
    except ImportError:
        return None
    module, inputs = in_torch.build("resnet50", "f32", batch, {})
    with torch.no_grad():
        model = openvino.convert_model(module, example_input=inputs[0])
    model.reshape({port: list(value.shape) for port, value in zip(model.inputs, inputs, strict=True)})
    if integers:
        shapes = [inputs[0].shape] * _CALIBRATING
        images = [np.random.default_rng(n).standard_normal(shape).astype("f") for n, shape in enumerate(shapes)]
        model = nncf.quantize(model, nncf.Dataset(images), preset=nncf.QuantizationPreset.PERFORMANCE)
    return called_by_openvino(model, inputs, "f32")


def measured(batch: int, seconds: float, policy: str) -> dict[str, float]:
    """Median seconds of each side; raises AssertionError where results differ."""
    random = np.random.default_rng(0)
    p = jax.tree.map(jnp.asarray, weights(random))
    images = jnp.asarray(random.standard_normal((batch, SIZE, SIZE, 3)), "float32")
    with hlo_dispatch.enabled(policy="never"):
        stock = jax.jit(network).lower(p, images).compile()
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(network, p)
        found = np.asarray(fast(images))
    wanted = np.asarray(stock(p, images))
    # A sum that almost lies between two integers may become either one, and what follows sees it.
    assert np.abs(found - wanted).max() <= 1e-2 * np.abs(wanted).max(), "it is wrong"
    (program,) = fast.report.programs
    assert program.dispatched is not None
    kernels = [region.kernel for region in program.dispatched.dispatched]
    print(f"batch {batch}: {kernels.count('onednn.convolution')} convolutions of {sum(n for n, _ in STAGES) * 3 + 5}")
    calls: dict[str, Callable[[], object] | None] = {
        "stock": lambda: jax.block_until_ready(stock(p, images)),
        "ours, frozen": lambda: jax.block_until_ready(fast(images)),
        "OpenVINO int8": in_openvino(batch, integers=True),
        "OpenVINO f32": in_openvino(batch, integers=False),
    }
    there = {name: call for name, call in calls.items() if call is not None}
    return {name: timing.median for name, timing in interleaved(there, seconds=seconds).items()}


def main() -> None:
    """Measure, print a line for each batch."""
    parser = argparse.ArgumentParser(prog="python -m bench.quantized", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each batch")
    parser.add_argument("--policy", default="measure")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "torch")
    lines = header()
    print(*lines, sep="\n")
    record = [{"batch": n, "seconds": measured(n, options.seconds, options.policy)} for n in options.batch]
    table = Table("batch", *record[0]["seconds"], title="ms")
    for entry in record:
        table.add_row(str(entry["batch"]), *(f"{1e3 * seconds:.2f}" for seconds in entry["seconds"].values()))
    rich.print(table)
    if options.output is not None:
        options.output.write_text(json.dumps({"header": lines, "cases": record}, indent=1))


if __name__ == "__main__":
    main()
