"""Glue ops between the members of a call group: means, gates and small products that would not pay alone."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import conv

import hlo_dispatch
from hlo_dispatch.passes.glue_ops import REASON
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.environment_switches import SEQUENCES_VARIABLE
from hlo_dispatch.selection.strategies import ALL_SUPPORTED, COST_MODEL, MEASURED_ALONE, MEASURED_JOINTLY
from side_by_side import Both, assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

DTYPES = ("float32", "bfloat16")
Weights = tuple[np.ndarray, ...]
# Older XLA widens and rounds around what is joined and pooled in half precision, and divides sums elsewhere.
KEEPS_HALF = jax.__version_info__ >= (0, 12)


def random(*shape: int, dtype: str = "float32", scale: float = 1.0) -> np.ndarray:
    drawn = np.random.default_rng(shape).standard_normal(shape) * scale
    return drawn.astype(jnp.dtype(dtype))


def squeeze_and_excite(x, weights):
    """As EfficientNet and MobileNetV3 have it between two convolutions."""
    first, squeeze, bias, excite, last = weights
    y = jax.nn.swish(conv(x, first))
    mean = y.mean((1, 2), keepdims=True)
    gate = jax.nn.sigmoid(conv(jax.nn.relu(conv(mean, squeeze) + bias), excite))
    return conv(y * gate, last)


def weights_of(channels: int, inner: int, dtype: str = "float32", outputs: int = 3) -> Weights:
    return (
        random(3, 3, 5, channels, dtype=dtype, scale=0.1),
        random(1, 1, channels, inner, dtype=dtype, scale=0.2),
        random(inner, dtype=dtype),
        random(1, 1, inner, channels, dtype=dtype),
        random(1, 1, channels, outputs, dtype=dtype, scale=0.2),
    )


def entries(both: Both) -> list[str]:
    return sorted(region.entry for region in both.report.dispatched)


def frozen(program, weights, x, half: float = 2e-2) -> hlo_dispatch.Report:
    """Compare a frozen program's results with stock's; `half` is how far those in half precision may be apart."""
    wanted = np.asarray(jax.jit(program)(weights, x), "float64")
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(program, weights)
        got = np.asarray(fast(x), "float64")
    assert np.abs(got - wanted).max() / np.abs(wanted).max() < (1e-5 if x.dtype == "float32" else half)
    report = fast.report.programs[0].dispatched
    assert report is not None
    return report


def in_float64(x: np.ndarray, weights: Weights) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(squeeze_and_excite(jnp.asarray(x, "float64"), [jnp.asarray(w, "float64") for w in weights]))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("size", "channels", "inner"), [(1, 8, 2), (5, 7, 1), (16, 33, 4), (9, 48, 12)])
def test_squeeze_and_excite_is_one_call(size: int, channels: int, inner: int, batch: int) -> None:
    x, weights = random(batch, size, size, 5), weights_of(channels, inner)
    both = run_both(squeeze_and_excite, x, weights)
    assert_agree(both)
    if size > 1:
        assert both.sequences == [6]
        assert {"whole_window", "scaling"} <= set(entries(both))
    np.testing.assert_allclose(np.asarray(both.dispatched[0], "float64"), in_float64(x, weights), rtol=2e-5, atol=2e-5)


def test_a_normalization_that_no_call_can_take_is_glue() -> None:
    def program(x, v, scale, shift, w):
        y = conv(x, v)
        return y, conv(jax.nn.relu(y * scale + shift), w)

    given = random(1, 9, 9, 5), random(3, 3, 5, 17), random(17), random(17), random(1, 1, 17, 4)
    both = run_both(program, *given)
    assert_agree(both)
    assert both.sequences == [3]
    assert entries(both) == ["convolution", "convolution", "scaling"]


def normalized(x, mean, scale):
    return (x / 255 - mean) * scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_an_image_is_normalized_ahead_of_the_first_call(batch: int, dtype: str) -> None:
    def program(weights, x):
        mean, scale, v, w = weights
        return conv(jax.nn.relu(conv(normalized(x, mean, scale), v)), w)

    shapes = (3,), (3,), (3, 3, 3, 17), (1, 1, 17, 5)
    weights = [random(*shape, dtype=dtype) for shape in shapes]
    report = frozen(program, weights, random(batch, 11, 9, 3, dtype=dtype, scale=100))
    assert [region.entry for region in report.dispatched].count("convolution") == 2
    if dtype == "float32":
        assert [sequence.calls for sequence in report.sequences] == [3]


def test_weights_that_are_scaled_are_no_image() -> None:
    """They are scaled once where they are frozen, and by XLA where they are not."""

    def program(weights, x):
        for w in weights:
            x = jax.nn.relu(conv(x, w * 0.37))
        return x

    weights, x = [random(3, 3, 16, 16)] * 3, random(1, 9, 9, 16)
    assert [region.entry for region in frozen(program, weights, x).dispatched] == ["convolution"] * 3
    assert entries(run_both(program, weights, x)) == ["convolution"] * 3


def test_what_is_normalized_for_xla_stays_with_it() -> None:
    def program(x, mean, scale, v, w):
        return conv(conv(x, v), w), jnp.sin(normalized(x, mean, scale))

    both = run_both(
        program, random(1, 9, 9, 3, scale=9), random(3), random(3), random(3, 3, 3, 17), random(1, 1, 17, 4)
    )
    assert_agree(both)
    assert entries(both) == ["convolution", "convolution"]


def test_what_no_call_reads_stays_with_xla() -> None:
    def program(x, v, scale):
        y = conv(x, v)
        return conv(y, scale), y.mean((1, 2)), y * 2 * y

    both = run_both(program, random(1, 9, 9, 5), random(3, 3, 5, 17), random(1, 1, 17, 17))
    assert_agree(both)
    assert entries(both) == ["convolution", "convolution"]


def test_without_call_groups_there_are_no_glue_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEQUENCES_VARIABLE, "0")
    both = run_both(squeeze_and_excite, random(1, 9, 9, 5), weights_of(24, 6))
    assert_agree(both)
    assert not {"whole_window", "scaling"} & set(entries(both))


def test_a_measured_program_is_tried_with_them_and_without() -> None:
    x, weights = random(1, 64, 64, 5), weights_of(256, 8, outputs=64)
    lowered = jax.jit(squeeze_and_excite).lower(x, weights).compile()
    module = lowered.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    stored = Pipeline.make(load_tables(), "stored")
    for strategy in (COST_MODEL, MEASURED_JOINTLY, MEASURED_ALONE):
        assert not [r for r in replace(stored, strategy=strategy).run(module)[1].dispatched if r.reason == REASON]
    between = [r.entry for r in replace(stored, strategy=ALL_SUPPORTED).run(module)[1].dispatched if r.reason == REASON]
    assert "scaling" in between
    assert "whole_window" in between
    assert not [r for r in hlo_dispatch.rewrite(module, policy="heuristic").report.dispatched if r.reason == REASON]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [5, 16])
def test_relus_of_what_is_also_added_are_glue_ops(size: int, dtype: str) -> None:
    """As Xception has them: a block begins with the relu of what it adds to in the end, and pools before it adds."""

    def program(x, first, v, w, last):
        x = conv(x, first)
        for _ in range(2):
            x = x + conv(jax.nn.relu(conv(jax.nn.relu(x), v)), w)
        y = conv(jax.nn.relu(conv(jax.nn.relu(x), v)), w)
        pooled = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        shortcut = jax.lax.conv_general_dilated(x, last, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return conv(jax.nn.relu(pooled + shortcut), last)

    given = random(3, 3, 5, 16, scale=0.3), random(3, 3, 16, 8, scale=0.1), random(3, 3, 8, 16, scale=0.1)
    arrays = (random(1, size, size, 5), *given, random(1, 1, 16, 16, scale=0.3))
    x, *weights = (jnp.asarray(value, dtype) for value in arrays)
    report = frozen(lambda weights, x: program(x, *weights), weights, x)
    assert [region.entry for region in report.dispatched].count("rectifying") == 3
    assert len(report.sequences) == 1


def dense_block(x, weights):
    """As DenseNet has it: what each layer gives is put behind all that those before it gave."""
    for scale, shift, narrow, wide in weights:
        y = conv(jax.nn.relu(x * scale + shift), narrow)
        x = jnp.concatenate([x, conv(jax.nn.relu(y), wide)], -1)
    return conv(x, jnp.ones((1, 1, x.shape[-1], 3), x.dtype) / x.shape[-1])


def dense_weights(channels: int, growth: int, layers: int, dtype: str = "float32") -> list[Weights]:
    counts = [channels + growth * number for number in range(layers)]
    return [
        (
            random(count, dtype=dtype),
            random(count, dtype=dtype),
            random(1, 1, count, 2 * growth, dtype=dtype, scale=count**-0.5),
            random(3, 3, 2 * growth, growth, dtype=dtype, scale=0.3 * growth**-0.5),
        )
        for count in counts
    ]


def towers(x, weights):
    """As Inception has it: branches of other depths, one behind the other, twice."""
    for one, first, second, third in weights:
        deep = conv(jax.nn.relu(conv(jax.nn.relu(conv(x, first)), second)), third)
        pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        x = jnp.concatenate([jax.nn.relu(conv(x, one)), jax.nn.relu(deep), pooled], -1)
    return conv(x, weights[0][0][:, :, :1].repeat(x.shape[-1], 2))


def tower_weights(channels: int, dtype: str = "float32") -> list[Weights]:
    made = []
    for count in (channels, 2 * channels + 1):
        made.append((
            random(1, 1, count, channels, dtype=dtype, scale=0.3),
            random(1, 1, count, 4, dtype=dtype, scale=0.3),
            random(3, 3, 4, 5, dtype=dtype, scale=0.2),
            random(3, 3, 5, 1, dtype=dtype, scale=0.2),
        ))  # fmt: skip
    return made


def doubled(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, "float64"), tree)


@pytest.mark.parametrize(("size", "channels", "growth"), [(1, 8, 3), (5, 7, 1), (14, 33, 12), (9, 16, 16)])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_dense_block_is_one_call(batch: int, size: int, channels: int, growth: int) -> None:
    x, weights = random(batch, size, size, channels), dense_weights(channels, growth, 4)
    both = run_both(dense_block, x, weights)
    assert_agree(both)
    assert entries(both).count("concatenation") == 4
    if size > 1:
        # The first normalization reads what no call gives.
        assert both.sequences == [2 * 4 + 1 + 4 + 3]
    with jax.enable_x64(True):
        wanted = np.asarray(dense_block(*doubled((x, weights))))
    np.testing.assert_allclose(np.asarray(both.dispatched[0], "float64"), wanted, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 6, 15])
def test_towers_are_one_call(size: int, dtype: str) -> None:
    x, weights = random(1, size, size, 8, dtype=dtype), tower_weights(8, dtype)
    both = run_both(towers, x, weights)
    assert_agree(both)
    if size > 1 and (KEEPS_HALF or dtype == "float32"):
        assert entries(both).count("concatenation") == 2
        assert len(both.sequences) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_averages_at_the_edges_are_glue_ops(dtype: str) -> None:
    """As Inception has them: what lies outside of the image does not count."""

    def average(x):
        sums = jax.lax.reduce_window(x, jnp.zeros((), x.dtype), jax.lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        ones = jnp.ones(x.shape, x.dtype)
        counts = jax.lax.reduce_window(ones, jnp.zeros((), x.dtype), jax.lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        return sums / counts

    def program(x, v, w, last):
        y = conv(x, v)
        z = jnp.concatenate([conv(y, w), average(y)], -1)
        return conv(z, last) + conv(average(z), last)

    given = random(3, 3, 5, 16), random(3, 3, 16, 8, scale=0.1), random(1, 1, 24, 4, scale=0.2)
    x, *weights = (jnp.asarray(value, dtype) for value in (random(1, 9, 9, 5), *given))
    report = frozen(lambda weights, x: program(x, *weights), weights, x)
    if KEEPS_HALF or dtype == "float32":
        assert [region.entry for region in report.dispatched].count("pooling") == 2
        assert len(report.sequences) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 10])
def test_averages_that_are_normalized_and_concatenated_are_members(size: int, dtype: str) -> None:
    """As DenseNet's transitions have them: XLA gives what is normalized without rounding it first."""

    def program(x, v, scale, shift, w, last):
        y = conv(x, v)
        sums = jax.lax.reduce_window(y, jnp.zeros((), y.dtype), jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        y = sums * jnp.asarray(0.25, y.dtype)
        y = jnp.concatenate([y, conv(jax.nn.relu(y * scale + shift), w)], -1)
        return conv(y, last)

    given = random(3, 3, 5, 16, scale=0.3), random(16), random(16), random(3, 3, 16, 8, scale=0.1)
    arrays = (random(1, size, size, 5), *given, random(1, 1, 24, 7, scale=0.3))
    x, *weights = (jnp.asarray(value, dtype) for value in arrays)
    report = frozen(lambda weights, x: program(x, *weights), weights, x)
    if size > 2 and KEEPS_HALF:
        found = sorted(region.entry for region in report.dispatched)
        assert found == ["concatenation", "convolution", "convolution", "convolution", "pooling", "scaling"]
        assert len(report.sequences) == 1


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_arrays_are_concatenated_along_any_axis(axis: int) -> None:
    def joined(x, v, w):
        y = jnp.concatenate([conv(x, v), x, conv(x, w)], axis)
        return conv(y, jnp.ones((1, 1, y.shape[-1], 4), y.dtype))

    both = run_both(joined, random(2, 5, 6, 7), random(3, 3, 7, 7), random(1, 1, 7, 7))
    assert_agree(both)
    assert entries(both).count("concatenation") == 1


def test_concatenations_that_no_call_reads_stay_with_xla() -> None:
    def program(x, v, w):
        return jnp.concatenate([conv(x, v), conv(x, w)], -1)

    both = run_both(program, random(1, 5, 6, 7), random(3, 3, 7, 8), random(3, 3, 7, 3))
    assert_agree(both)
    assert entries(both) == ["convolution", "convolution"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_frozen_dense_block(dtype: str) -> None:
    x, weights = random(1, 14, 14, 24, dtype=dtype), dense_weights(24, 12, 20, dtype)

    def program(weights, x):
        return dense_block(x, weights)

    report = frozen(program, weights, x, half=3e-2)
    joins = [region for region in report.dispatched if region.entry == "concatenation"]
    if KEEPS_HALF or dtype == "float32":
        # Each reads what the one before it wrote.
        assert [region.attributes["sources"] for region in joins] == [2] * 20
        assert len(report.sequences) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_frozen(batch: int, dtype: str) -> None:
    x, weights = random(batch, 14, 14, 5, dtype=dtype), weights_of(48, 12, dtype)

    def program(weights, x):
        return squeeze_and_excite(x, weights)

    report = frozen(program, weights, x)
    assert [sequence.calls for sequence in report.sequences] == [6]
