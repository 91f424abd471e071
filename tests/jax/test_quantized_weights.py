"""Weight-only quantized matmuls of programs, 8 and 4 bits: against float64, and what is left to XLA."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from integer_programs import dispatched

import hlo_dispatch
from hlo_dispatch.report import Region

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

KERNEL = "own.narrow_product"
ROUNDING = {"float32": 1e-5, "bfloat16": 2e-2}
LARGEST = {"int4": 8, "int8": 128}


def weights(kind: str, *dims: int) -> Any:
    random = np.random.default_rng(dims)
    return jnp.asarray(random.integers(-LARGEST[kind], LARGEST[kind], dims, np.int8), kind)


def numbers(*dims: int, dtype: str = "float32") -> Any:
    return jnp.asarray(np.random.default_rng(dims).random(dims) + 0.1, dtype)


def per_channel(x: Any, q: Any, s: Any) -> Any:
    return x @ (q.astype(x.dtype) * s)


def in_groups(x: Any, q: Any, s: Any) -> Any:
    """Scales (groups, columns)."""
    groups, columns = s.shape
    wide = q.reshape(groups, -1, columns).astype(x.dtype) * s[:, None, :]
    return x @ wide.reshape(q.shape)


def in_groups_of_rows(x: Any, q: Any, s: Any) -> Any:
    """Weights (columns, what is summed up), as PyTorch has them, and scales (columns, groups)."""
    columns, groups = s.shape
    wide = q.reshape(columns, groups, -1).astype(x.dtype) * s[:, :, None]
    return x @ wide.reshape(q.shape).T


def checked(function: Any, x: Any, q: Any, s: Any, calls: int = 1) -> list[Region]:
    """Whether the result is right, and how many calls of the kernel there are."""
    found, every = dispatched(function, x, q, s)
    regions = [region for region in every if region.kernel == KERNEL]
    assert len(regions) == calls
    with jax.enable_x64(True), hlo_dispatch.enabled(policy="never"):
        wide = [jnp.asarray(np.asarray(value, "float64")) for value in (x, q, s)]
        exact = np.asarray(function(*wide))
        size = np.asarray(function(jnp.abs(wide[0]), jnp.abs(wide[1]), wide[2]))
    assert (np.abs(found.astype("float64") - exact) <= ROUNDING[x.dtype.name] * size).all()
    return regions


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("kind", LARGEST)
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 64, 66), (1, 1, 2), (3, 130, 34), (32, 96, 256), (7, 17, 1000)]
)
def test_one_scale_for_each_column(rows: int, inner: int, columns: int, kind: str, dtype: str) -> None:
    s = numbers(columns, dtype=dtype)
    # XLA makes products of one number something else.
    checked(per_channel, numbers(rows, inner, dtype=dtype), weights(kind, inner, columns), s, calls=int(inner > 1))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("kind", LARGEST)
@pytest.mark.parametrize(("rows", "groups", "group", "columns"), [(1, 2, 32, 66), (3, 5, 16, 34), (32, 3, 128, 256)])
def test_one_for_each_column_and_group(rows: int, groups: int, group: int, columns: int, kind: str, dtype: str) -> None:
    x = numbers(rows, groups * group, dtype=dtype)
    regions = checked(in_groups, x, weights(kind, groups * group, columns), numbers(groups, columns, dtype=dtype))
    assert regions[0].formula == "x @ (w · s)"
    q = weights(kind, columns, groups * group)
    checked(in_groups_of_rows, x, q, numbers(columns, groups, dtype=dtype))


@pytest.mark.parametrize("kind", LARGEST)
def test_what_follows_the_product(kind: str) -> None:
    bias, residual = numbers(66), numbers(2, 66)

    def network(x: Any, q: Any, s: Any) -> Any:
        return jax.nn.relu(in_groups(x, q, s) + bias.astype(x.dtype)) + residual.astype(x.dtype)

    regions = checked(network, numbers(2, 128), weights(kind, 128, 66), numbers(4, 66))
    assert regions[0].formula.startswith("relu(x @ (w · s) + b)")


@pytest.mark.parametrize(
    ("kind", "inner", "columns", "groups"),
    [("int4", 64, 33, 2), ("int8", 64, 32, 8), ("int8", 40, 32, 5), ("int4", 64, 32, 64)],
    ids=["a row ends within a byte", "groups of eight", "groups of eight, too", "a scale for each weight"],
)
def test_what_the_kernel_does_not_read_is_right_all_the_same(kind: str, inner: int, columns: int, groups: int) -> None:
    checked(in_groups, numbers(2, inner), weights(kind, inner, columns), numbers(groups, columns), calls=0)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("kind", LARGEST)
def test_many_rows(kind: str, dtype: str) -> None:
    x = numbers(70, 128, dtype=dtype)
    checked(per_channel, x, weights(kind, 128, 100), numbers(100, dtype=dtype))
    checked(in_groups, x, weights(kind, 128, 100), numbers(2, 100, dtype=dtype))
    checked(in_groups_of_rows, x, weights(kind, 100, 128), numbers(100, 2, dtype=dtype))


@pytest.mark.parametrize("kind", LARGEST)
def test_in_a_loop_over_stacked_weights(kind: str) -> None:
    def network(x: Any, q: Any, s: Any) -> Any:
        return jax.lax.scan(lambda x, layer: (in_groups(x, *layer) / 64, None), x, (q, s))[0]

    # A smaller one XLA runs as one call of its own.
    checked(network, numbers(2, 512), weights(kind, 3, 512, 512), numbers(3, 2, 512))


@pytest.mark.parametrize("kind", LARGEST)
def test_measured(kind: str) -> None:
    """Both sides are given such weights, and the kernel's results are as exact as XLA's."""
    x, q, s = numbers(1, 1024), weights(kind, 1024, 1024), numbers(8, 1024)
    with hlo_dispatch.enabled(policy="measure"):
        report = hlo_dispatch.explain(in_groups, x, q, s)
    assert [region.kernel for region in report.regions] == [KERNEL], str(report)
