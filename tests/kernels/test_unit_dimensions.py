"""Strides of dimensions of one element mean nothing: plans do not depend on them, since oneDNN's cache does not either.

A primitive of one of two such problems serves the other, too: what was planned of them must be the same.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from calls import Call, Window, convolution_call, matmul_call, random_values, tensor

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels

pytestmark = pytest.mark.any_python

ROLES = ("src", "weights", "dst")


def product(rows: int, depth: int, columns: int, dtype: str) -> Call:
    random = np.random.default_rng(0)
    source, weights = (random_values(random, shape, dtype) for shape in ((rows, depth), (depth, columns)))
    return matmul_call(tensor(source), tensor(weights))


def convolution(channels: int, outputs: int, space: tuple[int, ...], layout: tuple[int, ...], dtype: str) -> Call:
    random, ones = np.random.default_rng(0), (1,) * len(space)
    source, weights = (
        random_values(random, shape, dtype) for shape in ((1, channels, *space), (outputs, channels, *ones))
    )
    window = Window(ones, (0,) * len(space), (0,) * len(space), (0,) * len(space))
    return convolution_call(tensor(source, layout), tensor(weights), window, result_layout=layout)


def restrided(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The same call, dimensions of one element with each of some strides that fit."""
    places = [(role, i) for role in ROLES for i, size in enumerate(spec[f"{role}_dims"]) if size == 1]
    found: list[dict[str, Any]] = []
    for are_large in itertools.product((False, True), repeat=len(places)):
        changed = spec | {f"{role}_strides": list(spec[f"{role}_strides"]) for role in ROLES}
        for (role, i), is_large in zip(places, are_large, strict=True):
            changed[f"{role}_strides"][i] = int(np.prod(spec[f"{role}_dims"])) if is_large else 1
        found.append(changed)
    return found


def answer(name: str, spec: dict[str, Any]) -> tuple[str, int]:
    plan = kernels.plan(name, spec)
    return (plan.code, 0) if isinstance(plan, Refusal) else (plan.implementation, plan.scratch_bytes)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", [(16, 1, 64), (2, 1, 7), (1, 33, 5), (7, 16, 1), (1, 1, 1)])
def test_plans_of_products(sizes: tuple[int, int, int], dtype: str) -> None:
    call = product(*sizes, dtype)
    assert len({answer(call.name, spec) for spec in restrided(call.spec)}) == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("channels", "outputs", "space"), [(1, 3, (1,)), (8, 16, (1, 1)), (1, 1, (5, 4)), (4, 8, (1, 6))]
)
def test_plans_of_convolutions(channels: int, outputs: int, space: tuple[int, ...], dtype: str) -> None:
    call = convolution(channels, outputs, space, (0, *range(2, 2 + len(space)), 1), dtype)
    assert len({answer(call.name, spec) for spec in restrided(call.spec)}) == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_primitive_of_other_strides_serves_a_planned_call(dtype: str) -> None:
    """Channels first and last, of one position: each planned ahead of the other's run."""
    calls = [convolution(8, 16, (1,), layout, dtype) for layout in ((0, 2, 1), (0, 1, 2))]
    assert len({answer(call.name, call.spec) for call in calls}) == 1
    first, second = (np.asarray(call.run(), np.float64) for call in calls)
    np.testing.assert_allclose(first, second, rtol=1e-2, atol=1e-2)
