"""Our own attention against float64: all sizes, strides and steps."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attention_calls import DTYPES, AttentionCall
from hypothesis import given, settings
from hypothesis import strategies as st

from environment import clean_environment
from hlo_dispatch.errors import Refusal
from hlo_dispatch.process.machine import ISA_VARIABLE

pytestmark = pytest.mark.any_python

HIDDEN = [-1e30, -1e9, -1e4, float(np.finfo(np.float32).min), -np.inf]
SIZES = st.one_of(st.integers(1, 9), st.integers(1, 80), st.sampled_from([15, 16, 17, 47, 48, 49, 97, 197, 241, 300]))
KEYS = st.one_of(SIZES, st.integers(1, 1100))
HEAD_SIZES = st.one_of(st.integers(1, 70), st.sampled_from([32, 40, 64, 80, 96, 128, 255, 256]))


def random_of(seed: int, *shape: int, dtype: str = "f32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def plain(queries: int, keys: int, depth: int = 24, width: int = 20, *batch: int, dtype: str = "f32") -> AttentionCall:
    shapes = (*batch, queries, depth), (*batch, keys, depth), (*batch, keys, width)
    call = AttentionCall(*(random_of(seed, *shape, dtype=dtype) for seed, shape in enumerate(shapes)))
    return call.scale(depth**-0.5)


@st.composite
def operands(draw: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of this shape with any strides: its dimensions in any order, one batch dimension perhaps the same
    elements again, and perhaps a part of a larger buffer."""
    seed = draw(st.integers(0, 2**31))
    shared = draw(st.sampled_from([None, *range(len(shape) - 2)]))
    sizes = [1 if axis == shared else size for axis, size in enumerate(shape)]
    order = draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else list(range(len(shape)))
    room = [size + draw(st.sampled_from([0, 0, 0, 1, 3])) for size in sizes]
    memory = random_of(seed, *(room[axis] for axis in order), dtype=dtype)
    view = memory.transpose(np.argsort(order))[
        tuple(slice(have - size, have) for have, size in zip(room, sizes, strict=True))
    ]
    return np.broadcast_to(view, shape)


@st.composite
def calls(draw: Any) -> AttentionCall:
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=4)))
    queries, keys, depth, width = draw(SIZES), draw(KEYS), draw(HEAD_SIZES), draw(HEAD_SIZES)
    dtype = draw(st.sampled_from(list(DTYPES)))
    shapes = (*batch, queries, depth), (*batch, keys, depth), (*batch, keys, width)
    call = AttentionCall(*(draw(operands(shape, dtype)) for shape in shapes))
    call.layout = draw(st.permutations(range(len(batch) + 2)))
    call.dst_type = draw(st.sampled_from(list(DTYPES)))
    call.scale(depth**-0.5)
    for kind in draw(st.lists(st.sampled_from(["scale", "add", "select", "causal", "window", "softcap"]), max_size=4)):
        hidden = draw(st.sampled_from(HIDDEN))
        scores = tuple(draw(st.sampled_from([1, size])) for size in call.score_dims)
        if kind == "scale":
            call.scale(draw(st.sampled_from([0.5, 1.25, -1.0])))
        elif kind == "softcap":
            call.softcap(draw(st.sampled_from([2.0, 30.0])))
        elif kind == "causal":
            call.causal(draw(st.one_of(st.integers(-3, 3), st.integers(-keys, keys), st.just(keys - queries))), hidden)
        elif kind == "window":
            call.window(draw(st.one_of(st.integers(1, 40), st.integers(-queries, keys))), hidden)
        elif kind == "add":
            addends = draw(operands(scores, draw(st.sampled_from(list(DTYPES)))))
            if draw(st.booleans()):
                mask = np.random.default_rng(draw(st.integers(0, 99))).random(addends.shape) < 0.9
                addends = np.where(mask, addends.dtype.type(-np.inf), addends)
            call.add(addends)
        else:
            mask = np.random.default_rng(draw(st.integers(0, 99))).random(scores) < draw(st.sampled_from([0.1, 0.9]))
            call.select(mask, hidden)
    return call


@settings(max_examples=12 * settings().max_examples)
@given(calls())
def test_random_calls(call: AttentionCall) -> None:
    assert call.wrong() == ""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("kind", ["causal", "select", "add", "window"])
def test_rows_that_are_masked_throughout(dtype: str, hidden: float, kind: str) -> None:
    """Uniform weights over all keys for a finite number, NaN for minus infinity; the other rows are as they were."""
    call = plain(70, 300, 24, 20, 2, dtype=dtype)
    rows = np.arange(70)[:, None] >= 13
    if kind == "causal":
        call.causal(-13, hidden)
    elif kind == "window":
        call.window(-240, hidden)
    elif kind == "select":
        call.select(np.broadcast_to(rows, (70, 300)), hidden)
    else:
        call.add(np.broadcast_to(np.where(rows, 0, np.float32(hidden)), (70, 300)).astype(np.float32))
    result = call.run()
    if kind == "add" and np.isfinite(hidden) and hidden > -1e30:
        return  # the scores are rounded away, but not to one number
    assert call.wrong(result) == ""
    assert np.isnan(result).any() == (hidden == -np.inf)


@pytest.mark.parametrize("step", ["none", "causal", "window", "select"])
@pytest.mark.parametrize("operand", ["query", "key", "value"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (150, 3), (299, 19)])
def test_what_is_not_finite(step: str, operand: str, special: float, place: tuple[int, int]) -> None:
    """Of a value, the rows that see its key have it, and those far from them do not."""
    call = plain(300, 300, 20, 20)
    row, key = np.ogrid[:300, :300]
    sees = np.ones((300, 300), bool)
    if step == "causal":
        call.causal(0, -1e30)
        sees = key <= row
    elif step == "window":
        call.window(17, -1e30)
        sees = key > row - 17
    elif step == "select":
        call.select(key <= row, -1e30)
        sees = key <= row
    without = call.expected()
    getattr(call, operand)[place] = special
    if operand != "value":
        assert call.wrong() == ""
        return
    sees = sees[:, place[0]]
    near = np.convolve(sees, np.ones(2 * 48 + 1), "same") > 0
    found = call.run()
    np.testing.assert_allclose(found[sees], call.expected()[sees], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[~near], without[~near], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("shape", [(4, 6000), (60, 2000)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_keys_in_parts(dtype: str, shape: tuple[int, int], hidden: float) -> None:
    """Fewer blocks of queries than threads: whatever a mask leaves is divided; rows without any key have all."""
    queries, keys = shape
    rows, columns = np.ogrid[:queries, :keys]
    for mask in (columns < 700, columns < 3, columns >= keys - 5, columns % 1999 == 1000, rows < 2, rows < 0,
                 (columns < 100) & (rows > 0), columns < keys):  # fmt: skip
        call = plain(queries, keys, 128, 128, dtype=dtype).select(mask, hidden)
        assert call.wrong() == ""
    call = plain(queries, keys, 128, 128, dtype=dtype).causal(1000, hidden).window(50, hidden)
    assert call.wrong() == ""


@pytest.mark.parametrize("step", ["select", "add", "add bf16", "add f16", "add once"])
@pytest.mark.parametrize("queries", [4, 70])
def test_a_cache_is_read_as_far_as_the_mask_shows(step: str, queries: int) -> None:
    """What lies behind, such as another sequence's rows, is not read."""
    query, key, value = (random_of(seed, 2, size, 64) for seed, size in ((0, queries), (1, 5000), (2, 5000)))
    call, is_shown = AttentionCall(query, key, value).scale(0.125), np.arange(5000) < 300
    if step == "select":
        call.select(is_shown, -1e30)
    else:
        dtype = DTYPES[step.split()[1]] if step[4:] in DTYPES else np.dtype(np.float32)
        addends = np.where(is_shown, 0, -np.inf if step == "add f16" else -1e30 * np.float32(1.01))
        whole = (
            np.broadcast_to(addends, (queries, 5000)).astype(dtype, order="C")
            if step == "add"
            else addends.astype(dtype)
        )
        call.add(whole)
    expected = call.expected()
    key[:, 320:], value[:, 320:] = np.nan, np.nan
    np.testing.assert_allclose(call.run(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [-1e30, -5.0, 3.0, -np.inf])
@pytest.mark.parametrize("then", ["nothing", "bias", "causal"])
def test_masks_of_any_shape(hidden: float, then: str) -> None:
    """Whole blocks hidden, only some keys shown, rows with none; masks of rows, of keys, of heads."""
    random = np.random.default_rng(0)
    for batch, queries, keys in (((2,), 70, 700), ((3, 2), 1, 900), ((), 250, 33)):
        rows, columns = np.ogrid[:queries, :keys]
        for mask in (columns < keys // 3, columns >= keys - 5, rows < 9, (columns // 64 + rows // 20) % 3 == 1,
                     random.random((*batch, 1, 1)) < 0.5, random.random((queries, keys)) < 3 / keys):  # fmt: skip
            call = plain(queries, keys, 16, 16, *batch)
            if hidden == -np.inf:
                call.add(np.where(mask, np.float32(0.5), np.float32(hidden)))
            else:
                call.select(mask, hidden)
            if then == "bias":
                call.add(random_of(5, queries, keys))
            elif then == "causal":
                call.causal(keys // 2, -1e9)
            assert call.wrong() == ""


@pytest.mark.parametrize("size", [1e10, 1e17, 1e18, 9e18])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_huge_scores(size: float, dtype: str) -> None:
    """The largest one takes all; equal ones share."""
    call = plain(50, 200, 4, 8, dtype=dtype)
    call.query[:] = np.sign(call.query.astype(np.float32)).astype(call.query.dtype) * call.query.dtype.type(size)
    call.key[:] = np.sign(call.key.astype(np.float32)).astype(call.key.dtype) * call.key.dtype.type(size)
    assert call.wrong() == ""


@pytest.mark.parametrize("near", [-1e4, -1e4 - 50, -1e4 + 50, -1e4 + 103, -1e4 + 200])
@pytest.mark.parametrize("steps", ["causal", "window", "causal, scale", "causal, softcap", "causal, select"])
def test_kept_scores_near_what_hidden_ones_become(near: float, steps: str) -> None:
    """What causal steps hide is left out only where its weight vanishes."""
    call = plain(130, 400, 8, 8)
    call.add(np.float32(near))
    if steps == "window":
        call.window(5, -1e4)
    else:
        call.causal(0, -1e4)
    if steps == "causal, scale":
        call.scale(0.01)
    elif steps == "causal, softcap":
        call.softcap(1e3)
    elif steps == "causal, select":
        call.select(np.arange(400) % 3 > 0, -9.95e3)
    found, expected = call.run(), call.expected()
    # Scores of ten thousand are exact to a thousandth.
    np.testing.assert_allclose(found, expected, atol=5e-3)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("keys", [1, 3, 512, 5000])
@pytest.mark.parametrize("heads", [(1, 1), (2, 8), (1, 12)])
def test_decoding(dtype: str, keys: int, heads: tuple[int, int]) -> None:
    """One query, heads that share their keys, and a mask of how many there are."""
    groups, of_group = heads
    query = random_of(0, groups, of_group, 1, 64, dtype=dtype)
    key, value = (random_of(seed, groups, 1, keys, 64, dtype=dtype) for seed in (1, 2))
    shared = [np.broadcast_to(x, (groups, of_group, keys, 64)) for x in (key, value)]
    call = AttentionCall(query, *shared).scale(0.125).select(np.arange(keys) <= keys // 2, -1e30)
    assert call.wrong() == ""
    call = (
        AttentionCall(query, *shared).scale(0.125).causal(keys // 2, -1e30).add(random_of(3, groups, of_group, 1, keys))
    )
    assert call.wrong() == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_product_made_all_three(dtype: str) -> None:
    made = random_of(0, 2, 50, 3 * 4 * 16, dtype=dtype)
    parts = made.reshape(2, 50, 3, 4, 16).transpose(2, 0, 3, 1, 4)
    call = AttentionCall(*parts, layout=(0, 2, 1, 3)).scale(0.25)
    assert call.buffers()[1] is made
    assert call.wrong() == ""


def test_sums_over_thousands_of_keys_lose_no_more_than_numpys() -> None:
    """One sum over all keys would: each of its additions rounds as much as the sum has grown to."""
    call = plain(48, 16384, 16, 16)
    exact = call.expected()
    scores = call.query @ call.key.T * np.float32(16**-0.5)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    in_single = powers / powers.sum(-1, keepdims=True) @ call.value
    lost, by_numpy = (np.sqrt(np.mean((result - exact) ** 2)) for result in (call.run(), in_single))
    assert lost <= 2 * by_numpy


def test_one_key_is_its_value() -> None:
    call = plain(40, 1, 16, 24)
    np.testing.assert_array_equal(call.run(), np.broadcast_to(call.value.astype(np.float64), (40, 24)))


def test_the_same_again() -> None:
    """Whichever thread computes which part."""
    call = plain(300, 700, 64, 64, 2).causal(9, -1e30)
    function, buffers = call.compiled(), call.buffers()
    first = np.asarray(function(*buffers))
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(function(*buffers)), first)


def test_sixteen_threads_at_once() -> None:
    made = [plain(20 + 11 * n, 30 + 40 * n, 8 + n, 70 - n, 2, dtype="bf16" if n % 2 else "f32") for n in range(16)]
    functions = [call.compiled() for call in made]
    alone = [np.asarray(function(*call.buffers())) for call, function in zip(made, functions, strict=True)]

    def work(number: int) -> list[np.ndarray]:
        return [np.asarray(functions[number](*made[number].buffers())) for _ in range(20)]

    with ThreadPoolExecutor(16) as pool:
        for number, results in enumerate(pool.map(work, range(16))):
            assert made[number].wrong(made[number].logical(results[0])) == ""
            for result in results:
                np.testing.assert_array_equal(result, alone[number])


@pytest.mark.any_processor  # it sets the ISA caps itself
@pytest.mark.parametrize(("name", "most"), [("SSE41", "plain"), ("AVX2", "avx2"), ("AVX512_CORE", "avx512")])
def test_lesser_instruction_sets(name: str, most: str) -> None:
    """Right on all of them; and working memory does not grow with the length, whose scores would be 256 MB here."""
    worker = Path(__file__).with_name("attention_cases.py")
    paths = {"PYTHONPATH": ":".join([str(worker.parent), str(worker.parents[1])]), ISA_VARIABLE: name}
    done = subprocess.run([sys.executable, str(worker)], env=clean_environment(**paths), capture_output=True, text=True,
                          check=False, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    implementation, grown, *wrong = done.stdout.splitlines()
    assert implementation in [f"attention:{lesser}:f32" for lesser in ("plain", "avx2", "avx512")]
    assert ("plain", "avx2", "avx512").index(implementation.split(":")[1]) <= ("plain", "avx2", "avx512").index(most)
    assert int(grown) < 32 << 10
    assert not wrong


def refusal(call: AttentionCall, changes: dict[str, Any]) -> str:
    try:
        planned = call.planned(**changes)
    except ValueError as error:
        return str(error)
    return planned.sentence if isinstance(planned, Refusal) else ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"query_type": "f64"}, "attribute 'query_type': expected an element type of f32, bf16, f16, got 'f64'"),
        ({"key_dims": [9, 4]}, "key: expected dimensions [9, 5]"),
        ({"value_dims": [8, 6]}, "value: expected dimensions [9, 6]"),
        ({"dst_strides": [1, 1]}, "dst: expected a place for each element"),
        ({"dst_strides": [7, 1]}, "dst: expected a dense array"),
        ({"query_strides": [-1, 1]}, "query: expected strides >= 0, got -1"),
        ({"query_dims": [0, 5]}, "query: expected dimensions >= 1, got 0"),
        ({"query_offset": 3}, "query: expected 35 elements behind offset 3, got a buffer of 35"),
        (
            {"key_dims": [9], "key_strides": [1]},
            "key: expected rows, columns and up to 4 dimensions in front, got 1 dimensions",
        ),
        ({"scratch": -1}, "attribute 'scratch': expected at least 0, got -1"),
        ({"score_2": {"kind": "scale", "value": 1.0}}, "attribute 'score_1' is missing, but there is score_2"),
        ({"score_0": {"kind": "dropout", "value": 1.0}}, "attribute 'score_0.kind': expected scale, add, select"),
        ({"score_0": {"kind": "softcap", "value": 0.0}}, "expected a finite number other than 0"),
        ({"score_0": {"kind": "causal", "value": 0.0}}, "attribute 'offset' is missing"),
        ({"library": "0"}, "this executable was planned for hlo-dispatch 0"),
    ],
    ids=str,
)
def test_refusals(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(plain(7, 9, 5, 6), changes)
