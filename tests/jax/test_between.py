"""What lies between calls that are one sequence: means, gates and small products, which would not pay by themselves."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import conv

import hlo_dispatch
from hlo_dispatch.host.switches import SEQUENCES_VARIABLE
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.policy.measured import APART, EVERYTHING, GUESSED, TOGETHER
from hlo_dispatch.rewriting.between import REASON
from hlo_dispatch.rewriting.rewriter import Rewriter
from side_by_side import Both, assert_agree, run_both

DTYPES = ("float32", "bfloat16")
Weights = tuple[np.ndarray, ...]


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


def in_double(x: np.ndarray, weights: Weights) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(squeeze_and_excite(jnp.asarray(x, "float64"), [jnp.asarray(w, "float64") for w in weights]))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("size", "channels", "inner"), [(1, 8, 2), (5, 7, 1), (16, 33, 4), (9, 48, 12)])
def test_squeeze_and_excite_is_one_call(size: int, channels: int, inner: int, batch: int) -> None:
    x, weights = random(batch, size, size, 5), weights_of(channels, inner)
    both = run_both(squeeze_and_excite, x, weights)
    assert_agree(both)
    if size > 1 and batch == 1:
        assert both.sequences == [6]
        assert {"whole_window", "scaling"} <= set(entries(both))
    np.testing.assert_allclose(np.asarray(both.dispatched[0], "float64"), in_double(x, weights), rtol=2e-5, atol=2e-5)


def test_a_normalization_that_no_call_can_take_joins_two() -> None:
    def program(x, v, scale, shift, w):
        y = conv(x, v)
        return y, conv(jax.nn.relu(y * scale + shift), w)

    given = random(1, 9, 9, 5), random(3, 3, 5, 17), random(17), random(17), random(1, 1, 17, 4)
    both = run_both(program, *given)
    assert_agree(both)
    assert both.sequences == [3]
    assert entries(both) == ["convolution", "convolution", "scaling"]


def test_what_no_call_reads_stays_with_xla() -> None:
    def program(x, v, scale):
        y = conv(x, v)
        return conv(y, scale), y.mean((1, 2)), y * 2 * y

    both = run_both(program, random(1, 9, 9, 5), random(3, 3, 5, 17), random(1, 1, 17, 17))
    assert_agree(both)
    assert entries(both) == ["convolution", "convolution"]


def test_without_sequences_there_is_nothing_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEQUENCES_VARIABLE, "0")
    both = run_both(squeeze_and_excite, random(1, 9, 9, 5), weights_of(24, 6))
    assert_agree(both)
    assert not {"whole_window", "scaling"} & set(entries(both))


def test_a_measured_program_is_tried_with_them_and_without() -> None:
    x, weights = random(1, 64, 64, 5), weights_of(256, 8, outputs=64)
    lowered = jax.jit(squeeze_and_excite).lower(x, weights).compile()
    module = lowered.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    stored = Rewriter.make(load_tables(), "stored")
    for mode in (GUESSED, TOGETHER, APART):
        assert not [r for r in replace(stored, mode=mode).run(module)[1].dispatched if r.reason == REASON]
    between = [r.entry for r in replace(stored, mode=EVERYTHING).run(module)[1].dispatched if r.reason == REASON]
    assert "scaling" in between
    assert "whole_window" in between
    assert not [r for r in hlo_dispatch.rewrite(module, policy="heuristic").report.dispatched if r.reason == REASON]


@pytest.mark.parametrize("dtype", DTYPES)
def test_frozen(dtype: str) -> None:
    x, weights = random(1, 14, 14, 5, dtype=dtype), weights_of(48, 12, dtype)

    def program(weights, x):
        return squeeze_and_excite(x, weights)

    wanted = np.asarray(jax.jit(program)(weights, x), "float64")
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(program, weights)
        got = np.asarray(frozen(x), "float64")
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert error < (1e-5 if dtype == "float32" else 2e-2)
    report = frozen.report.programs[0].dispatched
    assert report is not None
    assert [sequence.calls for sequence in report.sequences] == [6]
