"""Direct convolutions: f64, and depthwise ones of f32 with gaps in the window or channels first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_dispatch
from side_by_side import assert_agree, assert_close, run_both

KERNEL = "own.convolution"
LAST = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
FIRST = {1: ("NCW", "OIW", "NCW"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCDHW", "OIDHW", "NCDHW")}


def drawn(*shape: int, dtype: str = "float64") -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def kernels(both: Any) -> list[str]:
    return [region.kernel for region in both.report.candidates]


def check_double(program: Any, *arguments: Any) -> None:
    with jax.enable_x64(True):
        both = run_both(program, *arguments)
    assert KERNEL in kernels(both)
    assert_agree(both, 1e-13)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one channel, a large window": ((1, 30, 29, 1), (9, 7, 1, 1), {}),
    "strided": ((2, 17, 19, 3), (5, 3, 3, 6), {"window_strides": (2, 3)}),
    "strided, one channel": ((1, 40, 41, 1), (9, 8, 1, 2), {"window_strides": (2, 2)}),
    "dilated": ((2, 17, 19, 4), (3, 4, 4, 5), {"rhs_dilation": (2, 3)}),
    "dilated, one channel": ((1, 40, 41, 1), (9, 3, 1, 1), {"rhs_dilation": (2, 3)}),
    "groups": ((1, 9, 70, 6), (3, 3, 2, 12), {"feature_group_count": 3}),
    "depthwise": ((1, 9, 11, 6), (3, 3, 1, 6), {"feature_group_count": 6}),
    "one dimension": ((2, 300, 3), (64, 3, 5), {}),
    "three dimensions": ((1, 6, 7, 8, 2), (3, 2, 3, 2, 4), {}),
    "padded by hand": ((1, 9, 8, 3), (3, 3, 3, 4), {"padding": ((0, 4), (3, 1))}),
    "a window larger than the image": ((1, 3, 4, 2), (7, 9, 2, 3), {}),
    "strides beyond the image": ((1, 9, 8, 2), (3, 3, 2, 3), {"window_strides": (64, 1000)}),
    "gaps beyond the image": ((1, 9, 8, 2), (3, 3, 2, 3), {"rhs_dilation": (64, 1000)}),
}


@pytest.mark.parametrize("order", [LAST, FIRST], ids=["last", "first"])
@pytest.mark.parametrize("name", CASES)
def test_double(name: str, order: dict[int, tuple[str, str, str]]) -> None:
    source, window, how = CASES[name]
    space = len(source) - 2
    options = {"window_strides": (1,) * space, "padding": "SAME"} | how
    x, w = drawn(*source), drawn(*window)
    if order is FIRST:
        x, w = np.moveaxis(x, -1, 1), np.transpose(w, (space + 1, space, *range(space)))
    check_double(lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=order[space], **options), x, w)


@pytest.mark.parametrize("mode", ["same", "full", "valid"])
def test_signals(mode: str) -> None:
    check_double(lambda x, k: jax.scipy.signal.convolve2d(x, k, mode=mode), drawn(33, 30), drawn(7, 9))
    check_double(lambda x, k: jax.scipy.signal.convolve(x, k, mode=mode), drawn(200), drawn(37))


def test_double_in_a_loop_under_vmap_and_grad() -> None:
    w = drawn(3, 3, 3, 3)

    def convolved(x: Any) -> Any:
        return lax.conv_general_dilated(x[None], w, (1, 1), "SAME", dimension_numbers=LAST[2])[0]

    x = drawn(9, 8, 3)
    check_double(lambda x: lax.fori_loop(0, 3, lambda _, x: convolved(x) * 0.1, x), x)
    check_double(lambda x: lax.scan(lambda c, _: (convolved(c) * 0.1, c.sum()), x, None, length=3), x)
    check_double(jax.vmap(convolved), np.stack([x, 2 * x]))
    check_double(jax.grad(lambda x: jnp.sum(jnp.sin(convolved(x)))), x)


def test_rounded_results_and_a_donated_source() -> None:
    """The kernel gives what it reads; what rounds that stays XLA's."""
    x, w = drawn(2, 9, 8, 3), drawn(3, 3, 3, 3)

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST[2])

    with jax.enable_x64(True):
        for kind, tolerance in (("float32", 1e-6), ("bfloat16", 1e-2), ("int32", 0)):
            both = run_both(lambda x, w, kind=kind: (convolved(x, w) * 100).astype(kind), x, w)
            assert KERNEL in kernels(both)
            assert_agree(both, tolerance)
            both = run_both(lambda x, w, kind=kind: convolved(x, w).astype(kind), x, w)
            assert KERNEL in kernels(both)
            assert_agree(both, tolerance)
        both = run_both(lambda x, w: lax.cond(x[0, 0, 0, 0] > 9, jnp.zeros_like, lambda x: convolved(x, w), x), x, w,
                        donate_argnums=0)  # fmt: skip
        assert_agree(both, 1e-13)


def test_frozen_and_from_several_threads() -> None:
    images, w = [drawn(1, 33, 31, 4) * number for number in range(8)], drawn(3, 3, 4, 5)

    def convolved(w: Any, x: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST[2])

    with jax.enable_x64(True):
        wanted = [np.asarray(jax.jit(convolved)(w, x)) for x in images]
        with hlo_dispatch.enabled(policy="always"):
            frozen = hlo_dispatch.freeze(convolved, w)
            assert_close(np.asarray(frozen(images[1])), wanted[1], 1e-13)

    def called(x: Any) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(frozen(x))

    with ThreadPoolExecutor(4) as pool:
        for got, expected in zip(pool.map(called, images), wanted, strict=True):
            assert_close(got, expected, 1e-13)


@pytest.mark.parametrize(
    ("image", "window", "is_taken"),
    [((2, 8, 40, 40), (16, 8, 3, 3), False), ((2, 8, 9, 9, 9), (16, 8, 3, 3, 3), True)],
    ids=["XLA has a kernel of its own", "three dimensions"],
)
def test_the_cost_model_takes_what_xla_computes_one_by_one(
    image: tuple[int, ...], window: tuple[int, ...], is_taken: bool
) -> None:
    with jax.enable_x64(True), hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(
            lambda x, w: lax.conv(x, w, (1,) * (x.ndim - 2), "SAME"), drawn(*image), drawn(*window)
        )
    assert [region.kernel == KERNEL for region in report.candidates] == [is_taken], report


def test_it_is_measured_like_any_other() -> None:
    """Its values are drawn, compared and timed in f64."""
    with jax.enable_x64(True), hlo_dispatch.enabled(policy="measure"):
        report = hlo_dispatch.explain(
            lambda x, w: lax.conv(x, w, (1, 1, 1), "SAME"), drawn(2, 8, 16, 16, 16), drawn(16, 8, 3, 3, 3)
        )
    (region,) = report.candidates
    assert region.kernel == KERNEL, region


def test_nan_and_infinity_stay_where_they_are() -> None:
    x = drawn(1, 20, 21, 1)
    x[0, 3, 4], x[0, 15, 15] = np.nan, np.inf
    with jax.enable_x64(True):
        both = run_both(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST[2]), x,
                        drawn(9, 3, 1, 1))  # fmt: skip
    assert KERNEL in kernels(both)
    assert_agree(both, 1e-13)


DEPTHWISE: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "dilated": ((3, 70, 7), (5, 1, 7), {"rhs_dilation": (4,)}),
    "dilated, many channels": ((2, 50, 40), (3, 1, 40), {"rhs_dilation": (16,)}),
    "dilated further than the image": ((1, 9, 17), (3, 1, 17), {"rhs_dilation": (16,)}),
    "dilated and strided": ((2, 13, 19, 6), (3, 3, 1, 6), {"rhs_dilation": (2, 3), "window_strides": (2, 1)}),
    "dilated in three dimensions": ((1, 6, 7, 8, 5), (3, 3, 2, 1, 5), {"rhs_dilation": (2, 1, 2)}),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_dilated_depthwise(name: str) -> None:
    source, window, how = DEPTHWISE[name]
    space = len(source) - 2
    options = {"window_strides": (1,) * space, "padding": "SAME", "feature_group_count": source[-1]} | how
    x, w = drawn(*source, dtype="float32"), drawn(*window, dtype="float32")

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, dimension_numbers=LAST[space], **options)

    both = run_both(convolved, x, w)
    assert KERNEL in kernels(both)
    assert_agree(both)
    assert_agree(run_both(jax.grad(lambda x, w: jnp.sum(jnp.sin(convolved(x, w))), (0, 1)), x, w))


@pytest.mark.parametrize("shape", [(1, 3, 13, 12), (2, 17, 5, 70), (1, 6, 1, 1)])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_of_channels_first(shape: tuple[int, ...], stride: int) -> None:
    groups = shape[1]
    x, w, b = drawn(*shape, dtype="float32"), drawn(groups, 1, 3, 3, dtype="float32"), drawn(groups, dtype="float32")

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=FIRST[2], feature_group_count=groups
        )

    both = run_both(convolved, x, w)
    assert_agree(both)
    assert_agree(run_both(lambda x, w, b: jax.nn.relu(convolved(x, w) + b[:, None, None]), x, w, b))
