"""Everyday operations: each as a user of JAX, of PyTorch and of NumPy writes it, with the operands that all three get.

A function gets its library's module first (`j`: jax, `t`: torch, NumPy is imported), so that no process imports a
library that it does not time.
"""

# pyright: basic
# jax and torch have no complete type hints.
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

FLOATS = ("f32", "f64", "bf16")
WIDE = ("f32", "f64")
DTYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}


class Drawn(NamedTuple):
    """An operand: normally distributed numbers of the program's element type, if nothing else is said."""

    shape: tuple[int, ...]
    kind: str = "normal"
    """Or "positive"; "index", an int32 below `bound`; "boolean"."""
    bound: int = 0


@dataclass(frozen=True)
class EverydayOperation:
    """One operation of all libraries; `operands` has them for about `n` elements."""

    kind: str
    name: str
    operands: Callable[[int], tuple[Drawn, ...]]
    jax: Callable[..., Any]
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] = FLOATS
    is_differentiable: bool = True
    """By its first operand."""


def drawn(operation: EverydayOperation, elements: int) -> list[np.ndarray]:
    """The operands as NumPy arrays: float32, int32 or bool, equal in each process."""
    arrays: list[np.ndarray] = []
    for number, operand in enumerate(operation.operands(elements)):
        random = np.random.default_rng((number, elements))
        if operand.kind == "index":
            arrays.append(random.integers(0, operand.bound, operand.shape, dtype=np.int32))
        elif operand.kind == "boolean":
            arrays.append(random.random(operand.shape) < 0.5)
        else:
            values = random.standard_normal(operand.shape, dtype=np.float32)
            arrays.append(np.abs(values) + np.float32(0.1) if operand.kind == "positive" else values)
    return arrays


def _vector(n: int) -> tuple[Drawn, ...]:
    return (Drawn((n,)),)


def _positive(n: int) -> tuple[Drawn, ...]:
    return (Drawn((n,), "positive"),)


def _two_positive(n: int) -> tuple[Drawn, ...]:
    return (Drawn((n,), "positive"), Drawn((n,), "positive"))


def _rows(columns: int) -> Callable[[int], tuple[Drawn, ...]]:
    return lambda n: (Drawn((max(1, n // columns), columns)),)


def _rows_and_scale(columns: int) -> Callable[[int], tuple[Drawn, ...]]:
    return lambda n: (Drawn((max(1, n // columns), columns)), Drawn((columns,)), Drawn((columns,)))


def _image(channels: int) -> Callable[[int], tuple[Drawn, ...]]:
    def operands(n: int) -> tuple[Drawn, ...]:
        side = max(2, math.isqrt(n // channels))
        return (Drawn((1, side, side, channels)), Drawn((channels,)), Drawn((channels,)))

    return operands


def _channels_first(n: int) -> tuple[Drawn, ...]:
    return (Drawn((1, 3, *(2 * [max(4, math.isqrt(n // 3))]))),)


def _square(n: int) -> tuple[Drawn, ...]:
    return (Drawn((math.isqrt(n), math.isqrt(n))),)


def _group_norm(j: Any, x: Any, scale: Any, bias: Any) -> Any:
    groups = x.reshape(*x.shape[:-1], 32, -1)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = ((groups - mean) ** 2).mean((1, 2, 4), keepdims=True)
    return ((groups - mean) * j.lax.rsqrt(variance + 1e-5)).reshape(x.shape) * scale + bias


def _layer_norm(j: Any, x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * j.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + bias


# --- tokens that are drawn, as samplers write it: of logits [1, vocabulary] and a seed ---


def _logits(n: int) -> tuple[Drawn, ...]:
    return (Drawn((1, n)), Drawn((2,), "index", 1 << 30))


def _drawn(j: Any, logits: Any, seed: Any) -> Any:
    return j.random.categorical(j.random.wrap_key_data(seed.astype("uint32")), logits)


def _drawn_of_50(j: Any, logits: Any, seed: Any) -> Any:
    values, places = j.lax.top_k(logits, 50)
    return j.numpy.take_along_axis(places, _drawn(j, values, seed)[:, None], -1)


def _drawn_above_the_50th(j: Any, logits: Any, seed: Any) -> Any:
    least = j.lax.top_k(logits, 50)[0][:, -1:]
    return _drawn(j, j.numpy.where(logits < least, -np.inf, logits), seed)


def _drawn_of_top_p(j: Any, logits: Any, seed: Any) -> Any:
    """As KerasHub's sampler."""
    likely, places = j.lax.top_k(j.nn.softmax(logits), logits.shape[-1])
    kept = j.numpy.cumsum(likely, -1) <= 0.9
    kept = j.numpy.concatenate([j.numpy.ones_like(kept[:, :1]), kept[:, :-1]], -1)
    key, logits = j.random.wrap_key_data(seed.astype("uint32")), j.numpy.log(j.numpy.where(kept, likely, 0.0))
    place = j.random.categorical(key, logits[..., None], axis=1, shape=(1, 1))
    return j.numpy.take_along_axis(places, place, -1)


def _drawn_of_top_p_in_place(j: Any, logits: Any, seed: Any) -> Any:
    """As Transformers' warper: dropped logits become -inf in place."""
    values, places = j.lax.top_k(logits, logits.shape[-1])
    kept = j.numpy.roll(j.numpy.cumsum(j.nn.softmax(values), -1) < 0.9, 1, -1).at[:, 0].set(True)
    return _drawn(j, j.lax.sort_key_val(places, j.numpy.where(kept, values, -np.inf))[1], seed)


def _torch_of_50(t: Any, logits: Any, seed: Any) -> Any:
    values, places = t.topk(logits, 50)
    return places.gather(-1, t.multinomial(values.softmax(-1), 1))


def _torch_of_top_p(t: Any, logits: Any, seed: Any) -> Any:
    likely, places = t.sort(logits.softmax(-1), descending=True)
    likely = likely.masked_fill(likely.cumsum(-1) - likely > 0.9, 0.0)
    return places.gather(-1, t.multinomial(likely, 1))


def _function(
    name: str, operands: Any, jax: Any, torch: Any, numpy: Any = None, dtypes: Any = FLOATS
) -> EverydayOperation:
    return EverydayOperation("functions", name, operands, jax, torch, numpy, dtypes)


OPERATIONS = (
    _function("sin", _vector, lambda j, x: j.numpy.sin(x), lambda t, x: t.sin(x), np.sin),
    _function(
        "cos + sin", _vector, lambda j, x: j.numpy.cos(x) + j.numpy.sin(x), lambda t, x: t.cos(x) + t.sin(x),
        lambda x: np.cos(x) + np.sin(x),
    ),
    _function("tan", _vector, lambda j, x: j.numpy.tan(x), lambda t, x: t.tan(x), np.tan),
    _function("atan2", _two_positive, lambda j, x, y: j.numpy.arctan2(x, y), lambda t, x, y: t.atan2(x, y), np.arctan2),
    _function("power", _two_positive, lambda j, x, y: x**y, lambda t, x, y: x**y, np.power),
    _function("exp", _vector, lambda j, x: j.numpy.exp(x), lambda t, x: t.exp(x), np.exp),
    _function("log", _positive, lambda j, x: j.numpy.log(x), lambda t, x: t.log(x), np.log),
    _function("log1p", _positive, lambda j, x: j.numpy.log1p(x), lambda t, x: t.log1p(x), np.log1p),
    _function("expm1", _vector, lambda j, x: j.numpy.expm1(x), lambda t, x: t.expm1(x), np.expm1),
    _function("tanh", _vector, lambda j, x: j.numpy.tanh(x), lambda t, x: t.tanh(x), np.tanh),
    _function("erf", _vector, lambda j, x: j.lax.erf(x), lambda t, x: t.erf(x)),
    _function("asinh", _vector, lambda j, x: j.numpy.arcsinh(x), lambda t, x: t.asinh(x), np.arcsinh),
    _function("sigmoid", _vector, lambda j, x: j.nn.sigmoid(x), lambda t, x: t.sigmoid(x)),
    _function("softplus", _vector, lambda j, x: j.nn.softplus(x), lambda t, x: t.nn.functional.softplus(x)),
    _function("gelu", _vector, lambda j, x: j.nn.gelu(x, approximate=False), lambda t, x: t.nn.functional.gelu(x)),
    _function(
        "gelu (tanh)", _vector, lambda j, x: j.nn.gelu(x), lambda t, x: t.nn.functional.gelu(x, approximate="tanh")
    ),
    _function("gammaln", _positive, lambda j, x: j.lax.lgamma(x), lambda t, x: t.lgamma(x)),
    _function(
        "complex exponential", _vector, lambda j, x: j.numpy.abs(j.numpy.exp(1j * x)),
        lambda t, x: t.exp(1j * x).abs(), lambda x: np.abs(np.exp(1j * x)), WIDE,
    ),
    _function(
        "RBF kernel row", _vector, lambda j, x: j.numpy.exp(-0.5 * (x - 0.3) ** 2),
        lambda t, x: t.exp(-0.5 * (x - 0.3) ** 2),
        lambda x: np.exp(-0.5 * (x - x.dtype.type(0.3)) ** 2),
    ),
    EverydayOperation(
        "reductions", "argmax of rows of 4096", _rows(4096), lambda j, x: j.numpy.argmax(x, -1),
        lambda t, x: t.argmax(x, -1), lambda x: np.argmax(x, -1), is_differentiable=False,
    ),
    EverydayOperation(
        "reductions", "argmin of one row", _vector, lambda j, x: j.numpy.argmin(x), lambda t, x: t.argmin(x), np.argmin,
        is_differentiable=False,
    ),
    EverydayOperation("reductions", "sum", _vector, lambda j, x: x.sum(), lambda t, x: x.sum(), np.sum),
    EverydayOperation(
        "reductions", "variance of columns", _rows(1000), lambda j, x: x.var(0),
        lambda t, x: x.var(0, unbiased=False), lambda x: x.var(0), WIDE,
    ),
    EverydayOperation(
        "reductions", "norm of rows", _rows(1000), lambda j, x: j.numpy.linalg.norm(x, axis=-1),
        lambda t, x: t.linalg.vector_norm(x, dim=-1), lambda x: np.linalg.norm(x, axis=-1), WIDE,
    ),
    EverydayOperation(
        "reductions", "nanmean of rows", _rows(1000), lambda j, x: j.numpy.nanmean(x, -1),
        lambda t, x: t.nanmean(x, -1), lambda x: np.nanmean(x, -1), WIDE,
    ),
    EverydayOperation(
        "reductions", "masked mean", lambda n: (Drawn((n,)), Drawn((n,), "boolean")),
        lambda j, x, m: j.numpy.where(m, x, 0).sum() / m.sum(), lambda t, x, m: t.where(m, x, 0).sum() / m.sum(),
        lambda x, m: np.where(m, x, 0).sum() / m.sum(), WIDE,
    ),
    EverydayOperation(
        "softmax", "of rows of 1000", _rows(1000), lambda j, x: j.nn.softmax(x, -1), lambda t, x: t.softmax(x, -1),
    ),
    EverydayOperation(
        "softmax", "of columns", _rows(1000), lambda j, x: j.nn.softmax(x, 0), lambda t, x: t.softmax(x, 0),
    ),
    EverydayOperation(
        "softmax", "logarithm of", _rows(1000), lambda j, x: j.nn.log_softmax(x, -1), lambda t, x: t.log_softmax(x, -1),
    ),
    EverydayOperation(
        "softmax", "logsumexp of rows", _rows(1000), lambda j, x: j.nn.logsumexp(x, -1),
        lambda t, x: t.logsumexp(x, -1), lambda x: np.logaddexp.reduce(x, -1), WIDE,
    ),
    EverydayOperation(
        "normalization", "layer norm of 768", _rows_and_scale(768), _layer_norm,
        lambda t, x, s, b: t.nn.functional.layer_norm(x, x.shape[-1:], s, b),
    ),
    EverydayOperation(
        "normalization", "group norm, 32 groups of 10 channels", _image(320), _group_norm,
        lambda t, x, s, b: t.nn.functional.group_norm(x.permute(0, 3, 1, 2), 32, s, b).permute(0, 2, 3, 1),
    ),
    EverydayOperation(
        "sorting", "sort", _vector, lambda j, x: j.numpy.sort(x), lambda t, x: t.sort(x).values, np.sort,
        is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "sort of integers", lambda n: (Drawn((n,), "index", 1 << 30),), lambda j, x: j.numpy.sort(x),
        lambda t, x: t.sort(x).values, np.sort, ("f32",), is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "argsort", _vector, lambda j, x: j.numpy.argsort(x), lambda t, x: t.argsort(x, stable=True),
        lambda x: np.argsort(x, kind="stable"), is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "rows of 10000", _rows(10_000), lambda j, x: j.numpy.sort(x, -1), lambda t, x: t.sort(x, -1).values,
        lambda x: np.sort(x, -1), is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "median of rows of 100", _rows(100), lambda j, x: j.numpy.median(x, -1),
        lambda t, x: t.quantile(x, 0.5, -1), lambda x: np.median(x, -1), WIDE, is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "percentile", _vector, lambda j, x: j.numpy.percentile(x, 90.0), None,
        lambda x: np.percentile(x, 90.0), WIDE, is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "permutation", lambda n: (Drawn((n,)), Drawn((2,), "index", 1 << 30)),
        lambda j, x, seed: j.random.permutation(j.random.wrap_key_data(seed.astype("uint32")), x),
        lambda t, x, seed: x[t.randperm(len(x))], lambda x, seed: np.random.default_rng(0).permutation(x), ("f32",),
        is_differentiable=False,
    ),
    EverydayOperation(
        "sorting", "50 largest of rows of 50000", _rows(50_000), lambda j, x: j.lax.top_k(x, 50),
        lambda t, x: tuple(t.topk(x, 50)), None, is_differentiable=False,
    ),
    EverydayOperation(
        "cumulative", "sum of rows of 1000", _rows(1000), lambda j, x: j.numpy.cumsum(x, -1),
        lambda t, x: t.cumsum(x, -1), lambda x: np.cumsum(x, -1), WIDE,
    ),
    EverydayOperation(
        "cumulative", "sum of columns", _rows(1024), lambda j, x: j.numpy.cumsum(x, 0), lambda t, x: t.cumsum(x, 0),
        lambda x: np.cumsum(x, 0), WIDE,
    ),
    EverydayOperation(
        "cumulative", "sum of one row", _vector, lambda j, x: j.numpy.cumsum(x), lambda t, x: t.cumsum(x, 0), np.cumsum,
        WIDE,
    ),
    EverydayOperation(
        "cumulative", "maximum of rows of 1000", _rows(1000), lambda j, x: j.lax.cummax(x, 1),
        lambda t, x: t.cummax(x, -1).values, lambda x: np.maximum.accumulate(x, -1), WIDE, is_differentiable=False,
    ),
    EverydayOperation(
        "cumulative", "logsumexp of rows of 1024", _rows(1024), lambda j, x: j.lax.cumlogsumexp(x, 1),
        lambda t, x: t.logcumsumexp(x, -1), lambda x: np.logaddexp.accumulate(x, axis=-1), WIDE,
    ),
    EverydayOperation(
        "counting", "histogram in 100", _vector, lambda j, x: j.numpy.histogram(x, 100, (-4.0, 4.0))[0],
        lambda t, x: t.histc(x, 100, -4.0, 4.0), lambda x: np.histogram(x, 100, (-4.0, 4.0))[0], WIDE,
        is_differentiable=False,
    ),
    EverydayOperation(
        "counting", "bincount", lambda n: (Drawn((n,), "index", 1000),), lambda j, x: j.numpy.bincount(x, length=1000),
        lambda t, x: t.bincount(x, minlength=1000), lambda x: np.bincount(x, minlength=1000), ("f32",),
        is_differentiable=False,
    ),
    EverydayOperation(
        "counting", "searchsorted", _vector, lambda j, x: j.numpy.searchsorted(j.numpy.linspace(-4, 4, 1000), x),
        lambda t, x: t.searchsorted(t.linspace(-4, 4, 1000), x),
        lambda x: np.searchsorted(np.linspace(-4, 4, 1000, dtype=x.dtype), x), ("f32",), is_differentiable=False,
    ),
    EverydayOperation(
        "counting", "interp", _vector,
        lambda j, x: j.numpy.interp(x, j.numpy.linspace(-4, 4, 1000), j.numpy.linspace(0, 1, 1000) ** 2), None,
        lambda x: np.interp(x, np.linspace(-4, 4, 1000), np.linspace(0, 1, 1000) ** 2), WIDE,
    ),
    EverydayOperation(
        "indexing", "rows of an embedding",
        lambda n: (Drawn((30_000, 256)), Drawn((max(1, n // 256),), "index", 30_000)),
        lambda j, table, i: j.numpy.take(table, i, axis=0), lambda t, table, i: t.nn.functional.embedding(i, table),
        lambda table, i: table[i], is_differentiable=False,
    ),
    EverydayOperation(
        "indexing", "mean of 64 rows of an embedding",
        lambda n: (Drawn((30_000, 256)), Drawn((max(1, n // 256 // 64), 64), "index", 30_000)),
        lambda j, table, i: table[i].mean(1), lambda t, table, i: t.nn.functional.embedding_bag(i, table, mode="mean"),
        lambda table, i: table[i].mean(1), WIDE, is_differentiable=False,
    ),
    EverydayOperation(
        "indexing", "one_hot product",
        lambda n: (Drawn((512, 64)), Drawn((max(1, n // 512),), "index", 512)),
        lambda j, table, i: j.nn.one_hot(i, 512, dtype=table.dtype) @ table,
        lambda t, table, i: t.nn.functional.one_hot(i.long(), 512).to(table.dtype) @ table,
        lambda table, i: np.eye(512, dtype=table.dtype)[i] @ table, WIDE,
    ),
    EverydayOperation(
        "distances", "pairs of points of 64",
        lambda n: (Drawn((max(1, math.isqrt(n)), 64)), Drawn((max(1, math.isqrt(n)), 64))),
        lambda j, x, y: ((x[:, None] - y[None]) ** 2).sum(-1), lambda t, x, y: t.cdist(x, y) ** 2,
        lambda x, y: (x**2).sum(-1)[:, None] + (y**2).sum(-1) - 2 * (x @ y.T), WIDE,
    ),
    EverydayOperation(
        "images", "patches of 3x3", _channels_first,
        lambda j, x: j.lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "VALID"),
        lambda t, x: t.nn.functional.unfold(x, 3), None, ("f32",),
    ),
    EverydayOperation(
        "images", "bilinear resize to twice the size", _image(64),
        lambda j, x, s, b: j.image.resize(x, (1, 2 * x.shape[1], 2 * x.shape[2], 64), "bilinear"),
        lambda t, x, s, b: t.nn.functional.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear"), None,
        ("f32",),
    ),
    EverydayOperation(
        "random", "normal", lambda n: (Drawn((n,)), Drawn((2,), "index", 1 << 30)),
        lambda j, x, seed: x + j.random.normal(j.random.wrap_key_data(seed.astype("uint32")), x.shape, "float32"),
        lambda t, x, seed: x + t.randn_like(x),
        lambda x, seed: x + np.random.default_rng(0).standard_normal(x.shape, x.dtype), ("f32",),
        is_differentiable=False,
    ),
    EverydayOperation(
        "sampling", "a token", _logits, _drawn, lambda t, x, seed: t.multinomial(x.softmax(-1), 1), None, ("f32",),
        is_differentiable=False,
    ),
    EverydayOperation(
        "sampling", "a token of 50", _logits, _drawn_of_50, _torch_of_50, None, ("f32",), is_differentiable=False,
    ),
    EverydayOperation(
        "sampling", "a token above the 50th", _logits, _drawn_above_the_50th, _torch_of_50, None, ("f32",),
        is_differentiable=False,
    ),
    EverydayOperation(
        "sampling", "top-p", _logits, _drawn_of_top_p, _torch_of_top_p, None, ("f32",), is_differentiable=False,
    ),
    EverydayOperation(
        "sampling", "top-p in place", _logits, _drawn_of_top_p_in_place, _torch_of_top_p, None, ("f32",),
        is_differentiable=False,
    ),
    EverydayOperation(
        "linear algebra", "LU", _square, lambda j, x: j.scipy.linalg.lu_factor(x)[0],
        lambda t, x: t.linalg.lu_factor(x)[0], None, WIDE, is_differentiable=False,
    ),
    EverydayOperation(
        "linear algebra", "solve", _square, lambda j, x: j.numpy.linalg.solve(x, x[:, :1]),
        lambda t, x: t.linalg.solve(x, x[:, :1]), lambda x: np.linalg.solve(x, x[:, :1]), WIDE, is_differentiable=False,
    ),
    EverydayOperation(
        "linear algebra", "QR", _square, lambda j, x: j.numpy.abs(j.numpy.linalg.qr(x)[1]),
        lambda t, x: t.linalg.qr(x)[1].abs(), lambda x: np.abs(np.linalg.qr(x)[1]), WIDE, is_differentiable=False,
    ),
)  # fmt: skip
KINDS = tuple(dict.fromkeys(operation.kind for operation in OPERATIONS))
