"""Sums over space and products by channel of our own, against float64; in place as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from calls import DTYPES, Call, random_values, tensor
from test_kernel_gate import in_place

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import registry

pytestmark = pytest.mark.any_python

CHANNELS = [1, 3, 7, 16, 17, 24, 31, 48, 65, 144, 1152]
SPACE = [(1, 1), (2, 1), (7, 7), (1, 37), (28, 29), (112, 9)]
LAYOUT = (0, 2, 3, 1)


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng()


def described(source: np.ndarray, result: np.ndarray) -> dict[str, Any]:
    tensors = tensor(source, LAYOUT).attributes("src") | tensor(result, LAYOUT).attributes("dst")
    return {"abi": registry.abi()} | tensors


def scaling(image: np.ndarray) -> Call:
    spec = described(image, image)
    return Call("own.channel_scaling", spec, [tensor(image, LAYOUT).memory], image.shape, image.dtype, LAYOUT)


def sums(image: np.ndarray, dtype: str) -> Call:
    result = np.zeros((*image.shape[:2], 1, 1), DTYPES[dtype])
    window = {"algorithm": "average", "window": list(image.shape[2:]), "strides": [1, 1], "dilations": [0, 0]}
    spec = described(image, result) | window | {"padding_low": [0, 0], "padding_high": [0, 0]}
    return Call("own.channel_sums", spec, [tensor(image, LAYOUT).memory], result.shape, result.dtype, LAYOUT)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("space", SPACE, ids=str)
def test_gate(generator: np.random.Generator, dtype: str, channels: int, images: int, space: tuple[int, int]) -> None:
    image = random_values(generator, (images, channels, *space), dtype)
    image[0, 0, 0, 0], image[-1, -1, -1, -1] = np.inf, np.nan
    gate = random_values(generator, (images, channels, 1, 1), dtype)
    call = scaling(image).binary("mul", gate, LAYOUT)
    expected = (image.astype(np.float64) * gate.astype(np.float64)).astype(np.float32).astype(DTYPES[dtype])
    np.testing.assert_array_equal(call.run(), expected.astype(np.float64))
    np.testing.assert_array_equal(in_place(call), call.run())


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("images", [1, 2])
def test_normalization(generator: np.random.Generator, dtype: str, channels: int, images: int) -> None:
    """A number, a mean for each channel, a scale for each channel of each image, a line."""
    image = random_values(generator, (images, channels, 13, 11), dtype)
    number, mean, scale = (
        random_values(generator, dims) for dims in ((1, 1, 1, 1), (1, channels, 1, 1), (images, channels, 1, 1))
    )
    call = scaling(image).binary("mul", number, LAYOUT).binary("sub", mean, LAYOUT).binary("mul", scale, LAYOUT)
    call = call.binary("add", mean, LAYOUT).eltwise("linear", 0.25, -3.0)
    expected = ((image.astype(np.float64) * number - mean) * scale + mean) * 0.25 - 3
    tolerance = 2.0**-7 if dtype == "bf16" else 2.0**-21
    np.testing.assert_allclose(call.run(), expected, rtol=tolerance, atol=4 * tolerance)
    np.testing.assert_array_equal(in_place(call), call.run())


@pytest.mark.parametrize(("dtype", "result"), [("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32")])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("space", SPACE, ids=str)
def test_mean(
    generator: np.random.Generator, dtype: str, result: str, channels: int, images: int, space: tuple[int, int]
) -> None:
    image = random_values(generator, (images, channels, *space), dtype) + DTYPES[dtype].type(3)
    count = float(np.prod(space))
    call = sums(image, result).eltwise("linear", count, 0.0).eltwise("linear", 1 / count, 0.5)
    expected = image.astype(np.float64).mean(axis=(2, 3), keepdims=True) + 0.5
    np.testing.assert_allclose(call.run(), expected, rtol=2.0**-8 if result == "bf16" else 2.0**-19)


def test_what_is_no_number_stays_so(generator: np.random.Generator) -> None:
    image = random_values(generator, (1, 33, 40, 40))
    image[0, 5, 39, 39], image[0, 20, 0, 7], image[0, 32, 3, 3] = np.nan, np.inf, -np.inf
    found = sums(image, "f32").run().reshape(-1)
    np.testing.assert_array_equal(found[[5, 20, 32]], [np.nan, np.inf, -np.inf])
    assert np.isfinite(np.delete(found, [5, 20, 32])).all()


def test_what_is_not_taken_is_said(generator: np.random.Generator) -> None:
    image = random_values(generator, (2, 8, 5, 5))
    gate = random_values(generator, (2, 8, 1, 1))
    row = random_values(generator, (1, 8, 5, 1))
    refused = {
        "mul, add or sub": scaling(image).binary("max", gate, LAYOUT),
        "one number for each channel": scaling(image).binary("mul", row, LAYOUT),
        "eltwise linear": sums(image, "f32").eltwise("relu"),
    }
    for words, call in refused.items():
        answer = call.planned()
        assert isinstance(answer, Refusal), answer
        assert words in str(answer)
    rows = tensor(image, (0, 1, 2, 3))
    spec = described(image, image) | rows.attributes("src") | rows.attributes("dst")
    call = Call("own.channel_scaling", spec, [rows.memory], image.shape, image.dtype, (0, 1, 2, 3)).binary("mul", gate)
    assert "channels that vary fastest" in str(call.planned())
