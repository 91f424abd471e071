"""Stride propagation: values of which only every n-th position is read, with unchanged results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import conv, random

import hlo_dispatch
from hlo_dispatch.ir.attributes import from_text
from hlo_dispatch.report.wording import summary
from side_by_side import assert_agree, run_both

DTYPES = ("float32", "bfloat16")


def computed(report: hlo_dispatch.Report) -> list[tuple[int, ...]]:
    """The spatial size of what each convolution computes."""
    return [tuple(region.attributes["dst_dims"][2:]) for region in report.dispatched if region.opcode == "convolution"]


def last_report() -> hlo_dispatch.Report:
    return hlo_dispatch.reports()[-1]


def stage(x, wide, v, w, narrow, beside, step=2):
    """The end of one stage of ResNet, and the beginning of the next, which steps over it."""
    shortcut = jax.nn.relu(conv(x, wide))
    y = jax.nn.relu(conv(jax.nn.relu(conv(shortcut, v)), w) + shortcut)
    return jax.nn.relu(conv(y, narrow, step)), conv(y, beside, step)


def weights(dtype: str) -> list[np.ndarray]:
    shapes = (1, 1, 7, 24), (3, 3, 24, 5), (1, 1, 5, 24), (1, 1, 24, 6), (1, 1, 24, 40)
    return [random(*shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (5, 8), (13, 16)])
def test_a_stage_that_is_stepped_over(dtype: str, height: int, width: int) -> None:
    both = run_both(stage, random(2, height, width, 7, dtype=dtype), *weights(dtype))
    assert_agree(both)
    half = -(-height // 2), -(-width // 2)
    if height * width > 4:
        sizes = computed(last_report())
        assert sizes.count(half) == 4, sizes
        assert sizes.count((height, width)) == 1, "the shortcut is read whole by what comes behind it"


@pytest.mark.parametrize("step", [3, (1, 2), (2, 1)])
def test_steps_of_other_sizes(step: int | tuple[int, int]) -> None:
    both = run_both(lambda *given: stage(*given, step=step), random(2, 11, 13, 7), *weights("float32"))
    assert_agree(both)
    high, wide = (step, step) if isinstance(step, int) else step
    assert computed(last_report()).count((-(-11 // high), -(-13 // wide))) == 4


def test_nothing_is_left_out_where_somebody_reads_it() -> None:
    def sum_of_all(x, v, narrow):
        y = jax.nn.relu(conv(x, v))
        return conv(y, narrow, 2), y.sum()

    def another_step(x, v, narrow):
        y = jax.nn.relu(conv(x, v))
        return conv(y, narrow, 2), conv(y, narrow, 3)

    def given_out(x, v, narrow):
        y = jax.nn.relu(conv(x, v))
        return conv(y, narrow, 2), y

    def wide_window(x, v, narrow):
        return conv(jax.nn.relu(conv(x, v)), jnp.tile(narrow, (2, 2, 1, 1)), 2, "VALID")

    for program in (sum_of_all, another_step, given_out, wide_window):
        assert_agree(run_both(program, random(1, 12, 12, 7), random(3, 3, 7, 24), random(1, 1, 24, 6)))
        assert (12, 12) in computed(last_report()), program.__name__


def test_a_strided_call_is_a_member_and_no_region() -> None:
    report = run_both(stage, random(2, 12, 12, 7), *weights("float32")).report
    (sequence,) = report.sequences
    assert sequence.calls > len(report.dispatched), "or the program has none"
    assert report.calls == 1
    assert "5 of 5 regions dispatched in 1 call;" in summary(report)


def test_a_pooling_takes_larger_steps_too() -> None:
    def program(x, narrow):
        pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        return jax.nn.relu(conv(pooled, narrow, 2))

    assert_agree(run_both(program, random(2, 13, 9, 24), random(1, 1, 24, 6)))
    pooling = [r for r in last_report().dispatched if r.kernel == "onednn.pooling"]
    assert [tuple(region.attributes["dst_dims"][2:]) for region in pooling] == [(7, 5)]
    assert "computed as f32[2,7,5,24]" in pooling[0].reason


def test_nan_and_infinity_of_a_residual_arrive() -> None:
    def program(x, v, narrow):
        return conv(conv(x, v) + x, narrow, 2)

    x, v, narrow = random(1, 8, 8, 24), random(1, 1, 24, 24), random(1, 1, 24, 6)
    for row, column, value in ((2, 4, np.nan), (4, 6, np.inf), (3, 3, np.nan), (0, 0, -np.inf)):
        x[0, row, column, 3] = value
    both = run_both(program, x, np.zeros_like(v), np.ones_like(narrow))
    assert_agree(both)
    assert np.isnan(both.dispatched[0]).any()
    assert computed(last_report()) == [(4, 4), (4, 4)]


def test_frozen() -> None:
    given = random(1, 13, 16, 7), *weights("float32")
    fast = hlo_dispatch.freeze(lambda w, x: stage(x, *w), given[1:])
    with hlo_dispatch.enabled(policy="always"):
        found = fast(given[0])
    wanted = jax.jit(stage)(*given)
    for ours, stock in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, stock, rtol=1e-4, atol=1e-4 * float(np.abs(stock).max()))
    report = fast.report.programs[0].dispatched
    assert report is not None
    assert computed(report).count((7, 8)) == 4


def test_a_gradient() -> None:
    def loss(x, *given):
        return sum((part.astype(jnp.float32) ** 2).sum() for part in stage(x, *given))

    assert_agree(run_both(jax.grad(loss, argnums=(0, 1, 3)), random(1, 9, 8, 7), *weights("float32")), 1e-3)


def test_a_strided_call_is_known_to_any_host() -> None:
    with hlo_dispatch.enabled(policy="always"):
        text = jax.jit(stage).lower(random(1, 8, 8, 7), *weights("float32")).compile().as_text()
    configuration = next(line for line in text.splitlines() if "onednn.pooling" in line)
    members = from_text(
        configuration[configuration.index("backend_config=") + len("backend_config=") :].rsplit(", meta")[0]
    )
    (picked,) = [value for value in members.values() if isinstance(value, dict) and "pooling" in value["target"]]
    assert (picked["algorithm"], picked["window"], picked["strides"]) == ("average", [1, 1], [2, 2])
