"""Programs of kinds that users of the field met, each small enough to be compiled and timed in seconds.

A program's size is the one that its users had, or a smaller one of the same kind.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hlo_dispatch.bench.programs import BenchProgram

Programs = Iterator[BenchProgram]


def _drawn(*shape: int, dtype: str = "float32") -> Any:
    import jax.numpy as jnp

    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return jnp.asarray(values * 50 if "int" in dtype else values).astype(dtype)


def _gradient(function: Callable, of: Any, seed: Any) -> Any:
    import jax

    return jax.vjp(function, of)[1](seed)[0]


def _backward_window(small: bool) -> Programs:
    """Input gradients of patch embeddings; weight gradients of transposed convolutions."""
    from jax import lax

    patch, side, channels = (4, 3, 8) if small else (16, 14, 768)

    def embed(x, w):
        return lax.conv_general_dilated(x, w, (patch, patch), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    image = (2, patch * side, patch * side, 3)
    w, x, g = _drawn(patch, patch, 3, channels), _drawn(*image), _drawn(2, side, side, channels)
    yield BenchProgram(
        "patch embedding, input gradient", lambda w, x, g: _gradient(lambda x: embed(x, w), x, g), (w, x, g)
    )

    def embed_first(x, w):
        return lax.conv_general_dilated(x, w, (patch, patch), "VALID")

    x, w, g = (a.transpose(order) for a, order in ((x, (0, 3, 1, 2)), (w, (3, 2, 0, 1)), (g, (0, 3, 1, 2))))
    yield BenchProgram(
        "patch embedding in NCHW, input gradient",
        lambda w, x, g: _gradient(lambda x: embed_first(x, w), x, g),
        (w, x, g),
    )
    side, channels = (4, 3) if small else (16, 64)
    k, v, h = _drawn(1, channels, 3, 3, 3), _drawn(1, channels, *(3 * [side])), _drawn(1, 1, *(3 * [2 * side]))

    def up(k, v):
        return lax.conv_general_dilated(v, k, (1, 1, 1), [(1, 2)] * 3, lhs_dilation=(2, 2, 2))

    yield BenchProgram(
        "3-D upsampling, weights gradient", lambda k, v, h: _gradient(lambda k: up(k, v), k, h), (k, v, h)
    )


def _f64_convolution(small: bool) -> Programs:
    """Convolutions of f64: scipy.signal in x64, physics."""
    import jax
    from jax import lax

    side, window, channels = (24, 7, 4) if small else (256, 15, 16)
    x, k = _drawn(side, side, dtype="float64"), _drawn(window, window, dtype="float64")
    yield BenchProgram("convolve2d", lambda x, k: jax.scipy.signal.convolve2d(x, k, mode="same"), (x, k))
    x, w = _drawn(4, channels, 32, 32, dtype="float64"), _drawn(2 * channels, channels, 3, 3, dtype="float64")
    yield BenchProgram("3x3 convolution", lambda x, w: lax.conv(x, w, (1, 1), "SAME"), (x, w))


def _integers(small: bool) -> Programs:
    """Products and convolutions of integers whose result stays integer."""
    import jax.numpy as jnp
    from jax import lax

    rows, depth, columns = (33, 30, 17) if small else (2048, 256, 512)
    for kind in ("int8", "int16", "int32"):
        a, b = _drawn(rows, depth, dtype=kind), _drawn(depth, columns, dtype=kind)
        yield BenchProgram(f"{kind} product", jnp.matmul, (a, b))
        yield BenchProgram(
            f"{kind} product to int32", lambda a, b: jnp.matmul(a, b, preferred_element_type="int32"), (a, b)
        )
    channels = 8 if small else 64
    x, w = _drawn(2, 28, 28, channels, dtype="int8"), _drawn(3, 3, channels, channels, dtype="int8")

    def convolve(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type="int32"
        )

    yield BenchProgram("int8 convolution to int32", convolve, (x, w))


def _depthwise(small: bool) -> Programs:
    """Dilated depthwise convolutions, and those of channels first."""
    from jax import lax

    images, length, channels = (2, 50, 7) if small else (16, 1024, 64)
    x, w = _drawn(images, length, channels), _drawn(5, 1, channels)

    def dilated(x, w):
        return lax.conv_general_dilated(
            x,
            w,
            (1,),
            "SAME",
            rhs_dilation=(16,),
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=channels,
        )

    yield BenchProgram("dilated depthwise", dilated, (x, w))
    side, groups = (13, 5) if small else (124, 256)
    x, k = _drawn(1, groups, side, side), _drawn(3, 3, 1, groups)

    def channels_first(x, k):
        order = ("NCHW", "HWIO", "NCHW")
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=order, feature_group_count=groups)

    yield BenchProgram("depthwise in NCHW", channels_first, (x, k))


def _f16(small: bool) -> Programs:
    """Products and convolutions of f16."""
    import jax.numpy as jnp
    from jax import lax

    rows, columns, channels = (5, 24, 4) if small else (64, 1536, 64)
    yield BenchProgram(
        "f16 product", jnp.matmul, (_drawn(4, rows, 128, dtype="float16"), _drawn(4, 128, columns, dtype="float16"))
    )
    x, w = _drawn(2, channels, 28, 28, dtype="float16"), _drawn(channels, channels, 3, 3, dtype="float16")
    yield BenchProgram("f16 convolution", lambda x, w: lax.conv(x, w, (1, 1), "SAME"), (x, w))


def _per_sample(small: bool) -> Programs:
    """Gradients of each sample of a batch."""
    import jax
    from jax import lax

    samples, channels, side = (3, 4, 9) if small else (16, 64, 32)
    x, w = _drawn(samples, 1, channels, side, side), _drawn(channels, channels, 3, 3)

    def gradients(x, w, g):
        return jax.vmap(lambda x, g: _gradient(lambda w: lax.conv(x, w, (1, 1), "SAME"), w, g))(x, g)

    yield BenchProgram("gradients of each sample", gradients, (x, w, _drawn(samples, 1, channels, side, side)))


def _small_solves(small: bool) -> Programs:
    """Batches of tiny matrices."""
    import jax.numpy as jnp

    for size in (3, 6):
        a = _drawn(50 if small else 60_000 // size, size, size)
        a = a @ a.swapaxes(-1, -2) + 0.1 * jnp.eye(size)
        for name, function in (("solve", lambda a: jnp.linalg.solve(a, a[..., :1])), ("inv", jnp.linalg.inv),
                               ("det", jnp.linalg.det), ("cholesky", jnp.linalg.cholesky),
                               ("eigvalsh", jnp.linalg.eigvalsh), ("eigh", _root)):  # fmt: skip
            yield BenchProgram(f"{name} of {size}x{size}", function, (a,))


def _root(a: Any) -> Any:
    """By eigenvectors, whose signs cancel out."""
    import jax.numpy as jnp

    values, vectors = jnp.linalg.eigh(a)
    return (vectors * jnp.sqrt(values)[..., None, :]) @ vectors.swapaxes(-1, -2)


def _sparse(small: bool) -> Programs:
    """A sparse matrix (BCOO) times a dense one."""
    import jax.numpy as jnp
    from jax.experimental import sparse

    side, entries, columns = (40, 100, 5) if small else (20_000, 200_000, 64)
    random = np.random.default_rng(0)
    places = np.stack([np.sort(random.integers(0, side, entries)), random.integers(0, side, entries)], 1)
    arguments = (_drawn(entries), jnp.asarray(places.astype("int32")), _drawn(side, columns))
    yield BenchProgram("BCOO times dense", lambda v, i, b: sparse.BCOO((v, i), shape=(side, side)) @ b, arguments)


def _counting(small: bool) -> Programs:
    """Histograms, counts of indices, places in sorted arrays."""
    import jax.numpy as jnp

    elements, places = (1_000, 100) if small else (1_000_000, 1_000)
    x, edges = _drawn(elements), jnp.linspace(-4, 4, places)
    indices = jnp.asarray(np.random.default_rng(0).integers(0, places, elements, "int32"))
    yield BenchProgram("histogram", lambda x: jnp.histogram(x, 100, (-4.0, 4.0))[0], (x,))
    yield BenchProgram("bincount", lambda i: jnp.bincount(i, length=places), (indices,))
    yield BenchProgram("searchsorted", jnp.searchsorted, (edges, x))
    yield BenchProgram("interp", lambda x, edges: jnp.interp(x, edges, edges**2), (x, edges))


KINDS: dict[str, Callable[[bool], Programs]] = {
    "backward-window": _backward_window,
    "f64-convolution": _f64_convolution,
    "integers": _integers,
    "depthwise": _depthwise,
    "f16": _f16,
    "per-sample": _per_sample,
    "small-solves": _small_solves,
    "sparse": _sparse,
    "counting": _counting,
}
"""Kind → its programs, small or not."""
