"""Integers of checkpoints as they are: zero points, scales of groups, two numbers of four bits in a byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from integer_programs import dispatched

import hlo_dispatch

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

KERNEL = "own.narrow_product"
ROUNDING = {"float32": 1e-5, "bfloat16": 2e-2}
RANDOM = np.random.default_rng(11)


def integers(kind: str, *dims: int) -> Any:
    bounds = np.iinfo(kind)
    return jnp.asarray(RANDOM.integers(bounds.min, bounds.max + 1, dims), kind)


def numbers(*dims: int, dtype: str = "float32") -> Any:
    return jnp.asarray(RANDOM.standard_normal(dims), dtype)


def scales(*dims: int, dtype: str = "float32") -> Any:
    return jnp.asarray(RANDOM.random(dims) + 0.1, dtype)


def halves(p: Any) -> Any:
    """(…, blocks, bytes) → (…, blocks, numbers): as GGUF has them."""
    return jnp.concatenate([p & 15, p >> 4], -1)


def neighbours(p: Any) -> Any:
    return jnp.stack([p & 15, p >> 4], -1).reshape(*p.shape[:-1], -1)


def shifted(p: Any) -> Any:
    """As GPTQ's readers spell it."""
    return ((p[..., None] >> 4 * jnp.arange(2, dtype="uint8")) & 15).reshape(*p.shape[:-1], -1)


UNPACKED: dict[str, Callable[[Any], Any]] = {"halves": halves, "neighbours": neighbours, "shifted": shifted}


def checked(function: Any, exact: Any, *arguments: Any, calls: int = 1, size: Any = None) -> Any:
    """Whether a jitted and a frozen function (of all but the first argument) are right, and how many calls they have.

    Args:
        exact: the dequantized weights (what is summed up, outputs), in float64.
    """
    x = arguments[0]
    wanted = np.asarray(x, "float64") @ exact
    allowed = ROUNDING[x.dtype.name] * (np.abs(np.asarray(x, "float64")) @ (np.abs(exact) if size is None else size))
    found, regions = dispatched(function, *arguments)
    assert (np.abs(found.astype("float64") - wanted) <= allowed).all()
    assert [region.kernel for region in regions].count(KERNEL) == calls
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda w, x: function(x, *w), arguments[1:])
        assert (np.abs(np.asarray(frozen(x), "float64") - wanted) <= allowed).all()
    report = frozen.report.programs[0].dispatched
    assert report is not None
    assert [region.kernel for region in report.regions].count(KERNEL) == calls
    if calls:
        assert frozen.nbytes <= sum(leaf.nbytes for leaf in jax.tree.leaves(arguments[1:])) + 4096
    return regions


def wide_of(q: Any, s: Any, z: Any) -> tuple[Any, Any]:
    """Of (columns, groups, numbers): the weights (what is summed up, columns), and the size of what is added up."""
    q, s, z = (np.asarray(value, "float64") for value in (q, s, z))
    exact, size = (q - z[..., None]) * s[..., None], (np.abs(q) + np.abs(z[..., None]) + 8) * s[..., None]
    return exact.reshape(len(q), -1).T, size.reshape(len(q), -1).T


# Every size, group and type that the kernel has, the spellings by turns: they are the matcher's alone.
@pytest.mark.parametrize(
    ("rows", "groups", "columns", "form", "group", "dtype"),
    [
        (*size, list(UNPACKED)[(a + b + c) % 3], group, dtype)
        for a, size in enumerate([(1, 3, 34), (5, 1, 7), (32, 2, 130), (3, 4, 1)])
        for b, group in enumerate([32, 64, 128])
        for c, dtype in enumerate(ROUNDING)
    ],
)
def test_nibbles_of_outputs(rows: int, groups: int, columns: int, form: str, group: int, dtype: str) -> None:
    """(outputs, groups, bytes), as most checkpoints have them: zero points of groups, and eight for all of them."""
    p, s = integers("uint8", columns, groups, group // 2), scales(columns, groups)
    z = jnp.asarray(RANDOM.integers(0, 16, (columns, groups)), "float32")
    unpack, x = UNPACKED[form], numbers(rows, groups * group, dtype=dtype)

    def with_zeros(x: Any, p: Any, s: Any, z: Any) -> Any:
        wide = (unpack(p).astype("float32") - z[..., None]) * s[..., None]
        return (x.astype("float32") @ wide.reshape(len(wide), -1).T).astype(x.dtype)

    def with_eight(x: Any, p: Any, s: Any) -> Any:
        wide = (unpack(p).astype("int8") - 8).astype("float32") * s[..., None]
        return (x.astype("float32") @ wide.reshape(len(wide), -1).T).astype(x.dtype)

    q = np.asarray(unpack(p))
    checked(with_zeros, wide_of(q, s, z)[0], x, p, s, z, size=wide_of(q, s, z)[1])
    eight = np.full((columns, groups), 8)
    checked(with_eight, wide_of(q, s, eight)[0], x, p, s, size=wide_of(q, s, eight)[1])


@pytest.mark.parametrize("form", ["neighbours", "shifted"])
@pytest.mark.parametrize(("rows", "groups", "columns"), [(1, 3, 34), (5, 1, 8), (32, 2, 130)])
def test_nibbles_of_inputs(rows: int, groups: int, columns: int, form: str) -> None:
    """(inputs, outputs / 2)."""
    p, s = integers("uint8", groups * 32, columns // 2), scales(groups, columns)
    z = jnp.asarray(RANDOM.integers(0, 16, (groups, columns)), "float32")
    unpack = UNPACKED[form]

    def product(x: Any, p: Any, s: Any, z: Any) -> Any:
        q = unpack(p).reshape(groups, 32, columns)
        return x @ ((q.astype(x.dtype) - z[:, None]) * s[:, None]).reshape(groups * 32, columns)

    q = np.moveaxis(np.asarray(unpack(p)).reshape(groups, 32, columns), 2, 0)
    exact, size = wide_of(q, s.T, z.T)
    checked(product, exact, numbers(rows, groups * 32), p, s, z, size=size)


@pytest.mark.parametrize("zeros", ["number", "outputs", "groups"])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize(("rows", "groups", "columns"), [(1, 3, 34), (5, 1, 7), (32, 2, 130)])
def test_eight_bits_with_zero_points(rows: int, groups: int, columns: int, group: int, zeros: str) -> None:
    q, s = integers("int8", columns, groups, group), scales(columns, groups)
    z = {"number": jnp.full((1, 1), 3.0), "outputs": numbers(columns, 1), "groups": numbers(columns, groups)}[zeros]

    def product(x: Any, q: Any, s: Any, z: Any) -> Any:
        zero = 3.0 if zeros == "number" else z[..., None]
        return x @ ((q.astype(x.dtype) - zero) * s[..., None]).reshape(len(q), -1).T

    exact, size = wide_of(q, s, np.broadcast_to(np.asarray(z), s.shape))
    checked(product, exact, numbers(rows, groups * group), q, s, z, size=size)


def test_one_scale_and_zero_point_for_each_output() -> None:
    q, s, z = integers("int8", 48, 40), scales(40), numbers(40)
    exact = (np.asarray(q, "float64") - np.asarray(z, "float64")) * np.asarray(s, "float64")
    regions = checked(lambda x, q, s, z: x @ ((q.astype(x.dtype) - z) * s), exact, numbers(2, 48), q, s, z,
                      size=(np.abs(np.asarray(q, "float64")) + 4) * np.asarray(s))  # fmt: skip
    assert regions[0].formula == "x @ (w - z) · v1"


def test_what_follows_the_product() -> None:
    p, s, b = integers("uint8", 66, 4, 16), scales(66, 4, dtype="float16"), numbers(66)

    def network(x: Any, p: Any, s: Any, b: Any) -> Any:
        wide = (halves(p).astype("int8") - 8).astype(x.dtype) * s[..., None].astype(x.dtype)
        return jax.nn.relu(x @ wide.reshape(66, -1).T + b)

    x = numbers(2, 128)
    found, regions = dispatched(network, x, p, s, b)
    exact, size = wide_of(np.asarray(halves(p)), s, np.full((66, 4), 8))
    wanted = np.maximum(np.asarray(x, "float64") @ exact + np.asarray(b), 0)
    assert (np.abs(found - wanted) <= 1e-5 * (np.abs(np.asarray(x)) @ size + 4)).all()
    assert regions[0].formula == "relu(x @ ((w - z) · s) + b)"


def test_a_loop_over_stacked_nibbles() -> None:
    p, s = integers("uint8", 3, 512, 16, 16), scales(3, 512, 16)
    x = numbers(2, 512)

    def network(x: Any, p: Any, s: Any) -> Any:
        def layer(x: Any, weights: Any) -> Any:
            p, s = weights
            wide = (halves(p).astype("int8") - 8).astype(x.dtype) * s[..., None]
            return jnp.tanh(x @ wide.reshape(512, -1).T / 64), None

        return jax.lax.scan(layer, x, (p, s))[0]

    found, regions = dispatched(network, x, p, s)
    assert [region.kernel for region in regions if region.kernel == KERNEL] == [KERNEL]
    wanted = np.asarray(x, "float64")
    for number in range(3):
        wanted = np.tanh(wanted @ wide_of(np.asarray(halves(p[number])), s[number], np.full((512, 16), 8))[0] / 64)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "upper first": lambda p: jnp.stack([p >> 4, p & 15], -1),
    "other bits": lambda p: jnp.stack([p & 15, p >> 3], -1),
    "of two arrays": lambda p: jnp.stack([p & 15, p[::-1] >> 4], -1),
    "wrapped": lambda p: jnp.stack([p & 15, p >> 4], -1) - np.uint8(8),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_no_such_byte_is_right_all_the_same(form: str) -> None:
    p, s, unpack = integers("uint8", 34, 2, 16), scales(34, 2), REFUSED[form]

    def product(x: Any, p: Any, s: Any) -> Any:
        wide = unpack(p).reshape(34, 2, -1).astype(x.dtype) * s[..., None]
        return x @ wide.reshape(34, -1).T

    exact, size = wide_of(np.asarray(unpack(p)).reshape(34, 2, -1), s, np.zeros((34, 2)))
    checked(product, exact, numbers(2, 64), p, s, calls=0, size=size)


@pytest.mark.parametrize("group", [8, 24])
def test_groups_that_the_kernel_does_not_read(group: int) -> None:
    q, s, z = integers("int8", 34, 3, group), scales(34, 3), numbers(34, 3)
    exact, size = wide_of(q, s, z)
    checked(
        lambda x, q, s, z: x @ ((q.astype(x.dtype) - z[..., None]) * s[..., None]).reshape(34, -1).T,
        exact, numbers(2, 3 * group), q, s, z, calls=0, size=size,
    )  # fmt: skip


def test_a_zero_point_that_is_not_scaled() -> None:
    q, s, z = integers("int8", 64, 34), scales(34), numbers(34)
    exact = np.asarray(q, "float64") * np.asarray(s) - np.asarray(z)
    checked(lambda x, q, s, z: x @ (q.astype(x.dtype) * s - z), exact, numbers(2, 64), q, s, z, calls=0,
            size=np.abs(exact) + 16)  # fmt: skip


def test_products_that_differ_in_their_zero_points_alone() -> None:
    """Attributes of one are not those of the other."""
    (first, second), s = (integers("int8", 24, 2, 32) for _ in range(2)), scales(24, 2)
    z, x = numbers(24, 2), numbers(2, 64)

    def both(x: Any, first: Any, second: Any, s: Any, z: Any) -> Any:
        with_zeros = (first.astype(x.dtype) - z[..., None]) * s[..., None]
        return x @ with_zeros.reshape(24, -1).T, x @ (second.astype(x.dtype) * s[..., None]).reshape(24, -1).T

    found, regions = dispatched(both, x, first, second, s, z)
    assert [region.kernel for region in regions] == [KERNEL] * 2
    for got, (exact, size) in zip(found, (wide_of(first, s, z), wide_of(second, s, jnp.zeros_like(s))), strict=True):
        allowed = ROUNDING["float32"] * (np.abs(np.asarray(x, "float64")) @ size)
        assert (np.abs(np.asarray(got, "float64") - np.asarray(x, "float64") @ exact) <= allowed).all()
