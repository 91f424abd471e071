"""Prefetched kernel support queries: a wrong prediction must not change the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.vendor import kernels
from matching import serialized, table

F = "f32[1,16,16,32]{3,2,1,0}"
# Two convolutions in a row with a residual add: each may have the add, and the last one does.
TEXT = f"""
ENTRY main {{ x = {F} parameter(0)
  w = f32[3,3,32,32]{{3,2,1,0}} parameter(1)
  first = {F} convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
  side = {F} convolution(x, w), window={{size=3x3 pad=1_1x1_1 rhs_dilate=1x1}}, dim_labels=b01f_01io->b01f
  zero = f32[] constant(0)
  zeros = {F} broadcast(zero), dimensions={{}}
  relu = {F} maximum(first, zeros)
  second = {F} convolution(relu, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
  sum = {F} add(second, side)
  ROOT end = {F} tanh(sum) }}
"""
M = "f32[8,8]{1,0}"
CONTRACTION = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
LAYERS = f"""
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  a = {M} dot(x, w), {CONTRACTION}
  b = {M} tanh(a)
  c = {M} dot(b, w), {CONTRACTION}
  d = {M} tanh(c)
  e = {M} dot(d, w), {CONTRACTION}
  f = {M} tanh(e)
  g = {M} dot(f, w), {CONTRACTION}
  ROOT h = {M} tanh(g) }}
"""
"""A chain of products, each of which reads what the one before it gives."""


def result(policy: str, *, prefetches: bool, text: str = TEXT) -> list[tuple]:
    """Every region: what it computes and covers, or why it does not, and where its epilogue ends."""
    pipeline = Pipeline.make(table(), policy, Machine("any", frozenset(("avx512f",)), 2))
    planner = pipeline.planner if prefetches else replace(pipeline.planner, prefetch=lambda _: False)
    report = Pipeline(planner).run(serialized(text))[1]
    return [(r.name, r.formula, r.covered, r.kernel, str(r.refusal), r.stopped_because) for r in report.regions]


@pytest.mark.parametrize("policy", ["always", "heuristic", "never"])
def test_prefetching_changes_nothing(policy):
    assert result(policy, prefetches=True) == result(policy, prefetches=False)


@pytest.mark.parametrize("text", [TEXT, LAYERS], ids=["convolutions", "layers"])
@pytest.mark.parametrize("refused", ["relu", "tanh", "binary", "all"])
def test_a_wrong_guess_changes_nothing(refused, text, monkeypatch):
    """The kernels refuse what was expected of them, so that later anchors were matched under a wrong prediction."""
    plan = kernels.plan

    def refusing(name, attributes, key=""):
        if refused == "all" or refused in str([v for k, v in attributes.items() if k.startswith("post_op")]):
            return Refusal("kernel-unsupported", "not today")
        return plan(name, attributes, key)

    monkeypatch.setattr(kernels, "plan", refusing)
    assert result("always", prefetches=True, text=text) == result("always", prefetches=False, text=text)
