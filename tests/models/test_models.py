"""Whole models: what is dispatched, and that the same numbers come out. Times belong to bench/, not here."""

from __future__ import annotations

import pytest

from hlo_dispatch.demo.compare import Compiled, compile_dispatched, compile_stock, relative_difference
from hlo_dispatch.demo.models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

# The logits of a deep network in float32: rounding grows with depth, 1e-4 is the promise.
DIFFERENCE = 1e-4


def both(name: str, **options: object) -> tuple[Compiled, Compiled]:
    """The model compiled with stock XLA and with every region that a kernel takes dispatched."""
    workload = MODELS[name].workload(**options)
    return compile_stock(workload), compile_dispatched(workload, policy="always")


def regions(compiled: Compiled, opcode: str):
    """The regions around one kind of anchor, over all modules of the compilation."""
    return [region for report in compiled.reports for region in report.regions if region.opcode == opcode]


def left(compiled: Compiled, opcode: str) -> list[str]:
    """What was not dispatched, with the reason, for a readable failure."""
    return [f"{region.shape}: {region.reason}" for region in regions(compiled, opcode) if not region.dispatched]


def test_resnet50_runs_in_onednn():
    workload = MODELS["resnet50"].workload()
    stock, dispatched = compile_stock(workload), compile_dispatched(workload, policy="always")
    convolutions = regions(dispatched, "convolution")
    assert left(dispatched, "convolution") == []
    assert len(convolutions) == 53
    assert relative_difference(stock(), dispatched()) <= DIFFERENCE
    # Its batch-norm and relu are folded in: 49 convolutions are followed by a relu, 16 of them by a residual add.
    assert sum("relu" in region.formula for region in convolutions) >= 49
    assert " convolution(" not in dispatched.text
    assert left(compile_dispatched(workload, policy="heuristic"), "convolution") == []


@pytest.mark.parametrize(("name", "count"), [("mobilenetv2", 52), ("efficientnetb0", 81)])
def test_mobile_networks(name, count):
    # In batches, because that changes which dimensions may be merged.
    stock, dispatched = both(name, size=96, batch=2)
    assert left(dispatched, "convolution") == []
    assert len(regions(dispatched, "convolution")) == count
    assert relative_difference(stock(), dispatched()) <= DIFFERENCE


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_bert_layer(dtype, tolerance):
    stock, dispatched = both("bert-layer", tokens=32, dtype=dtype)
    products = regions(dispatched, "dot")
    # Query, key, value, output, up, down: the six dense layers; attention's two products are small.
    assert sum(region.dispatched for region in products) >= 6, left(dispatched, "dot")
    assert any("gelu" in region.formula for region in products)
    assert relative_difference(stock(), dispatched()) <= tolerance


def test_small_unet():
    stock, dispatched = both("unet-small")
    assert any(region.dispatched for region in regions(dispatched, "convolution"))
    assert any(region.dispatched for region in regions(dispatched, "dot"))
    assert relative_difference(stock(), dispatched()) <= DIFFERENCE
