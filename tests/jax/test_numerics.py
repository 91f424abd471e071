"""Random convolutions and products with random epilogues: dispatched must equal stock, and float64 NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_by_side import assert_agree, assert_close, run_both

SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 33)
TYPES = ("float32", "bfloat16", "float16")

ACTIVATIONS = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "leaky_relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "gelu tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu erf": lambda x: jax.nn.gelu(x, approximate=False),
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "hard_swish": jax.nn.hard_swish,
    "hard_sigmoid": jax.nn.hard_sigmoid,
    "mish": jax.nn.mish,
    "abs": jnp.abs,
    "square": jnp.square,
    "clip": lambda x: jnp.clip(x, -0.5, 0.75),
    "affine": lambda x: x * 0.5 + 0.25,
    "negate": lambda x: -x,
    "bounded log": lambda x: jnp.log(jnp.abs(x) + 1),
    "bounded sqrt": lambda x: jnp.sqrt(jnp.abs(x) + 0.5),
}
BINARIES = {
    "+": lambda y, other: y + other,
    "-": lambda y, other: y - other,
    "reversed -": lambda y, other: other - y,
    "*": lambda y, other: y * other,
    "/": lambda y, other: y / (jnp.abs(other) + 1),
    "max": jnp.maximum,
    "min": jnp.minimum,
}


def values(random: np.random.Generator, shape, dtype: str) -> np.ndarray:
    return (random.standard_normal(shape) / 2).astype(jnp.dtype(dtype))


@st.composite
def epilogues(draw, result_rank: int):
    """Steps (name, dimensions in which the other operand is whole); no dimensions for an activation."""
    activation = st.tuples(st.sampled_from(list(ACTIVATIONS)), st.none())
    whole = st.frozensets(st.integers(0, result_rank - 1))
    binary = st.tuples(st.sampled_from(list(BINARIES)), whole)
    return draw(st.lists(st.one_of(activation, binary), max_size=4))


def apply_epilogue(y, steps, others):
    others = iter(others)
    for name, whole in steps:
        y = ACTIVATIONS[name](y) if whole is None else BINARIES[name](y, next(others))
    return y


def epilogue_operands(random, steps, shape, dtype) -> list[np.ndarray]:
    return [
        values(random, [size if number in whole else 1 for number, size in enumerate(shape)], dtype)
        for _, whole in steps
        if whole is not None
    ]


# --- products -----------------------------------------------------------------------------------------------

EINSUMS = (
    "mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->nm", "bmk,bkn->bmn", "bmk,kn->bmn", "bkm,bnk->bmn",
    "abmk,abkn->abmn", "bnhd,bmhd->bhnm", "bhnm,bmhd->bnhd", "abk,kcd->abcd", "abk,cdk->abcd", "kb,bkn->bn",
    "abcd,cde->abe", "m,n->mn", "k,k->", "mk,k->m", "bhk,hkn->bhn", "abk,bkn->nab", "mkj,jkn->nm",
)  # fmt: skip


@st.composite
def products(draw):
    spec = draw(st.sampled_from(EINSUMS))
    sizes = {letter: draw(st.sampled_from(SIZES)) for letter in sorted(set(spec) - set(",->"))}
    rank = len(spec.partition("->")[2])
    return spec, sizes, draw(st.sampled_from(TYPES)), draw(epilogues(rank)) if rank else []


@given(product=products())
def test_random_products(product) -> None:
    spec, sizes, dtype, steps = product
    operands, result = spec.split("->")
    left, right = ([sizes[letter] for letter in names] for names in operands.split(","))
    random = np.random.default_rng(math.prod(sizes.values()))
    arguments = [values(random, left, dtype), values(random, right, dtype)]
    others = epilogue_operands(random, steps, [sizes[letter] for letter in result], dtype)

    def program(a, b, *others):
        return apply_epilogue(jnp.einsum(spec, a, b), steps, others)

    both = run_both(program, *arguments, *others)
    assert_agree(both, chain_tolerance(dtype, steps))
    if dtype == "float32":
        exact = np.einsum(spec, *(argument.astype(np.float64) for argument in arguments))
        assert_close(both.dispatched[0], epilogue_in_float64(exact, steps, others), chain_tolerance(dtype, steps))


def epilogue_in_float64(exact: np.ndarray, steps, others) -> np.ndarray:
    """The same chain on the exact product, nowhere rounded to single precision."""
    with jax.enable_x64(True):
        wide = [jnp.asarray(other, jnp.float64) for other in others]
        return np.asarray(apply_epilogue(jnp.asarray(exact, jnp.float64), steps, wide))


def chain_tolerance(dtype: str, steps) -> float:
    """Stock rounds after each step in a narrow type; the kernel only once. Steps here stretch by at most 3."""
    return {"float32": 3e-5, "bfloat16": 3e-2, "float16": 4e-3}[dtype] * (1 + len(steps))


# --- convolutions -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convolution:
    """A random convolution's numbers; `layout` is "NC…" or "N…C"."""

    spatial: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    batch: int
    groups: int
    inputs: int
    """Per group, as are `outputs`."""
    outputs: int
    channels_last: bool
    dtype: str

    @property
    def numbers(self) -> tuple[str, str, str]:
        letters = "DHW"[-len(self.spatial) :]
        return ("N" + letters + "C", letters + "IO", "N" + letters + "C") if self.channels_last else (
            "NC" + letters, "OI" + letters, "NC" + letters
        )  # fmt: skip

    def shapes(self) -> tuple[list[int], list[int]]:
        channels, outputs = self.groups * self.inputs, self.groups * self.outputs
        if self.channels_last:
            return [self.batch, *self.spatial, channels], [*self.window, self.inputs, outputs]
        return [self.batch, channels, *self.spatial], [outputs, self.inputs, *self.window]

    def __call__(self, x, w):
        return jax.lax.conv_general_dilated(
            x, w, self.strides, self.padding, rhs_dilation=self.dilations,
            dimension_numbers=self.numbers, feature_group_count=self.groups,
        )  # fmt: skip


@st.composite
def convolutions(draw) -> Convolution:
    rank = draw(st.integers(1, 3))

    def each(choices):
        return draw(st.tuples(*[choices] * rank))

    window, dilations = each(st.integers(1, 4)), each(st.integers(1, 2))
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(window, dilations, strict=True)]
    padding = draw(st.tuples(*[st.tuples(st.integers(0, r), st.integers(0, r)) for r in reach]))
    spatial = draw(st.tuples(*[st.integers(max(1, r - 1), r + 7) for r in reach]))
    spatial = tuple(max(size, r - low - high) for size, r, (low, high) in zip(spatial, reach, padding, strict=True))
    depthwise = draw(st.booleans())
    return Convolution(
        spatial, window, each(st.integers(1, 3)), dilations, padding,
        batch=draw(st.sampled_from((1, 2, 3))),
        groups=draw(st.sampled_from((2, 3, 16, 17))) if depthwise else draw(st.sampled_from((1, 1, 1, 2, 3))),
        inputs=1 if depthwise else draw(st.sampled_from((1, 3, 8, 16, 17))),
        outputs=1 if depthwise else draw(st.sampled_from((1, 2, 5, 16, 17))),
        channels_last=draw(st.booleans()),
        dtype=draw(st.sampled_from(TYPES)),
    )  # fmt: skip


@given(convolution=convolutions(), data=st.data())
def test_random_convolutions(convolution, data) -> None:
    steps = data.draw(epilogues(len(convolution.spatial) + 2))
    source, weights = convolution.shapes()
    random = np.random.default_rng(math.prod(source) + math.prod(weights))
    arguments = [values(random, shape, convolution.dtype) for shape in (source, weights)]
    result = jax.eval_shape(convolution, *arguments).shape
    others = epilogue_operands(random, steps, result, convolution.dtype)

    def program(x, w, *others):
        return apply_epilogue(convolution(x, w), steps, others)

    both = run_both(program, *arguments, *others)
    assert_agree(both, chain_tolerance(convolution.dtype, steps))
    if convolution.dtype == "float32":
        exact = epilogue_in_float64(in_float64(convolution, *arguments), steps, others)
        assert_close(both.dispatched[0], exact, chain_tolerance("float32", steps))


def in_float64(convolution: Convolution, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution as sums of window positions, in NumPy: no library of anybody's."""
    rank = len(convolution.spatial)
    if convolution.channels_last:
        x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
    x, w = x.astype(np.float64), w.astype(np.float64)
    x = np.pad(x, ((0, 0), (0, 0), *convolution.padding))
    reach = [(k - 1) * d + 1 for k, d in zip(convolution.window, convolution.dilations, strict=True)]
    sizes = [(x.shape[2 + i] - reach[i]) // convolution.strides[i] + 1 for i in range(rank)]
    x = x.reshape(x.shape[0], convolution.groups, convolution.inputs, *x.shape[2:])
    w = w.reshape(convolution.groups, convolution.outputs, convolution.inputs, *convolution.window)
    y = np.zeros((x.shape[0], convolution.groups, convolution.outputs, *sizes))
    for position in np.ndindex(*convolution.window):
        cut = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(position, convolution.dilations, sizes, convolution.strides, strict=True)
        )
        y += np.einsum("ngi...,goi->ngo...", x[(..., *cut)], w[(..., *position)])
    y = y.reshape(y.shape[0], -1, *sizes)
    return np.moveaxis(y, 1, -1) if convolution.channels_last else y


# --- values that are no numbers -----------------------------------------------------------------------------

# What the library makes of them differs from XLA in places. This is the list of them, not an excuse.
LOSES_NAN = {
    "relu": 0.0,
    "relu6": 0.0,
    "clip": -0.5,
    "hard_sigmoid": 1.0,
    "exp": np.inf,
    "floor 1": 1.0,
    "ceiling 1": 1.0,
}
# erf's own formula gives NaN at infinity; a power is 0 where a reciprocal root is NaN.
DIFFERS_AT = {"gelu erf": np.inf, "rsqrt": -np.inf}
MORE = {
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": jax.lax.rsqrt,
    "cube": lambda x: x**3,
    "round": jnp.round,
    "floor 1": lambda x: jnp.maximum(x, 1),
    "ceiling 1": lambda x: jnp.minimum(x, 1),
}


@pytest.mark.parametrize("name", [*ACTIVATIONS, *MORE])
def test_extreme_values(name) -> None:
    function = (ACTIVATIONS | MORE)[name]
    extremes = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0, -0.0, 1e-40, 100, -100], "float32")
    x = np.stack([extremes, np.zeros_like(extremes)], axis=1)
    both = run_both(lambda x, w: function(x @ w), x, np.eye(2, 4, dtype="float32"))
    assert both.calls == 1
    stock, dispatched = both.stock[0][:, 0], both.dispatched[0][:, 0]
    if name in LOSES_NAN:
        assert np.isnan(stock[0])
        assert dispatched[0] == LOSES_NAN[name]
    excused = [(name in LOSES_NAN and np.isnan(x)) or x == DIFFERS_AT.get(name) for x in extremes]
    kept = ~np.array(excused)
    assert_close(dispatched[kept], stock[kept])
