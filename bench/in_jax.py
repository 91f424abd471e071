"""Cases as JAX programs, and their arguments."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from hlo_dispatch.bench import epilogues
from hlo_dispatch.bench.cases import Case
from hlo_dispatch.bench.operations import padding

_SPATIAL = {
    1: ("NWC", "WIO", "NCW", "OIW"),
    2: ("NHWC", "HWIO", "NCHW", "OIHW"),
    3: ("NDHWC", "DHWIO", "NCDHW", "OIDHW"),
}
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64", "c64": "complex64"}

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": nn.relu,
    "abs": jnp.abs,
    "square": jnp.square,
    "exp": jnp.exp,
    "round": jnp.round,
    "tanh": jnp.tanh,
    "sigmoid": nn.sigmoid,
    "gelu_tanh": nn.gelu,
    "gelu_erf": lambda y: nn.gelu(y, approximate=False),
    "mish": nn.mish,
    "clip": lambda y: jnp.clip(y, *epilogues.CLIP),
    "leaky_relu": lambda y: nn.leaky_relu(y, epilogues.LEAKY_SLOPE),
    "elu": lambda y: nn.elu(y, epilogues.ELU_ALPHA),
    "swish": nn.silu,
    "softplus": nn.softplus,
    "linear": lambda y: y * epilogues.LINEAR[0] + epilogues.LINEAR[1],
    "hard_sigmoid": nn.hard_sigmoid,
    "hard_swish": nn.hard_silu,
    "sqrt": jnp.sqrt,
    "log": jnp.log,
    "pow": lambda y: epilogues.POWER[0] * lax.rsqrt(y),
}
_BINARIES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda y, other: y + other,
    "subtract": lambda y, other: y - other,
    "multiply": lambda y, other: y * other,
    "divide": lambda y, other: y / other,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
}


def function(case: Case) -> Callable[..., Any]:
    """The case as a function of its operands, not jitted."""
    compute = _operation(case)
    taken = len(case.pattern.operation.operands(case.sizes))

    def run(*operands: Any) -> Any:
        y, others = compute(*operands[:taken]), list(operands[taken:])
        for step in case.pattern.steps:
            if not step.is_binary:
                y = _ACTIVATIONS[step.entry](y)
                continue
            other = others.pop(0)
            if step.operand == epilogues.CHANNEL:
                other = other.reshape([-1 if axis == case.channel_axis else 1 for axis in range(y.ndim)])
            y = _BINARIES[step.entry](y, other)
        return y

    return run


def arguments(case: Case) -> list[np.ndarray]:
    """Random operands as NumPy arrays of the case's element type; the same every time."""
    random = np.random.default_rng(0)
    steps = {f"{step.name}.{number}": step for number, step in enumerate(case.pattern.steps)}
    return [_operand(case, name, dims, steps.get(name), random) for name, dims in case.operands().items()]


def _operand(case: Case, name: str, dims: tuple[int, ...], step: Any, random: Any) -> np.ndarray:
    dtype = jnp.dtype(_DTYPES[case.dtype])
    if case.pattern.positive or (step is not None and step.positive):
        values = random.uniform(0.5, 1.5, dims)
    elif np.issubdtype(dtype, np.complexfloating):
        values = random.standard_normal(dims) + 1j * random.standard_normal(dims)
    else:
        values = random.standard_normal(dims)
    if name == "matrix":
        values = _conditioned(values, case.pattern.operation.name)
    if name == "weights":
        # results of the size of the sources
        values = values / np.sqrt(max(1.0, case.work / np.prod(case.result) / 2))
    return np.asarray(values).astype(dtype)


def _conditioned(values: np.ndarray, operation: str) -> np.ndarray:
    """A matrix that the operation can take and that does not blow rounding up."""
    size = values.shape[-1]
    if operation in ("cholesky", "eigh", "triangular_product"):
        symmetric = values @ np.swapaxes(values, -1, -2) / size
        return symmetric if operation == "eigh" else symmetric + np.eye(size)
    if operation == "triangular_solve":
        return np.tril(values) / size + np.eye(size)
    return values / np.sqrt(size) + np.eye(size)


def _operation(case: Case) -> Callable[..., Any]:
    name, z = case.pattern.operation.name, case.sizes
    if "conv" in name:
        return _convolution(case)
    if name in ("max_pool", "avg_pool"):
        return _pool(case)
    if name == "matmul":
        return lambda x, w: x @ (jnp.swapaxes(w, -1, -2) if z["transposed"] else w)
    if name == "attention":
        return partial(_attention, causal=bool(z["causal"]))
    return _PLAIN[name]


def _convolution(case: Case) -> Callable[..., Any]:
    operation, z = case.pattern.operation, case.sizes
    labels = _SPATIAL[operation.spatial][2 if case.is_channels_first else 0 :][:2]
    numbers = (labels[0], labels[1], labels[0])
    if operation.name == "conv_transpose":
        return lambda x, w: lax.conv_transpose(x, w, (z["stride"],) * 2, "SAME", dimension_numbers=numbers)

    def forward(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            w,
            (z["stride"],) * operation.spatial,
            ((padding(z), padding(z)),) * operation.spatial,
            rhs_dilation=(z["dilation"],) * operation.spatial,
            dimension_numbers=numbers,
            feature_group_count=z["c"] if operation.name == "depthwise_conv" else z["groups"],
        )

    if operation.name.endswith("_gradient"):
        wanted = case.result
        if operation.name.endswith("weights_gradient"):
            return lambda x, y: jax.vjp(lambda w: forward(x, w), jnp.zeros(wanted, x.dtype))[1](y)[0]
        return lambda w, y: jax.vjp(lambda x: forward(x, w), jnp.zeros(wanted, w.dtype))[1](y)[0]
    return forward


def _pool(case: Case) -> Callable[..., Any]:
    z = case.sizes
    around = (1, 1) if case.is_channels_first else (1,)
    behind = () if case.is_channels_first else (1,)
    window, strides = ((*around, size, size, *behind) for size in (z["r"], z["stride"]))
    if case.pattern.operation.name == "max_pool":
        return lambda x: lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, window, strides, "VALID")

    def average(x: Any) -> Any:
        total = lax.reduce_window(x, np.array(0, x.dtype), lax.add, window, strides, "VALID")
        return total / np.array(z["r"] ** 2, x.dtype)

    return average


def _attention(query: Any, key: Any, value: Any, *, causal: bool) -> Any:
    scores = jnp.einsum("nhqd,nhkd->nhqk", query, key) / np.sqrt(query.shape[-1]).astype(query.dtype)
    if causal:
        places = [lax.broadcasted_iota("int32", scores.shape, axis) for axis in (2, 3)]
        scores = jnp.where(places[0] >= places[1], scores, np.array(np.finfo(np.float32).min, scores.dtype))
    return jnp.einsum("nhqk,nhkd->nhqd", nn.softmax(scores), value)


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(x), -1, keepdims=True) - jnp.square(mean)
    return (x - mean) * lax.rsqrt(variance + np.array(1e-6, x.dtype)) * scale + bias


def _rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + np.array(1e-6, x.dtype)) * scale


_PLAIN: dict[str, Callable[..., Any]] = {
    "softmax": nn.softmax,
    "log_softmax": nn.log_softmax,
    "argmax": lambda x: jnp.argmax(x, -1),
    "argmin": lambda x: jnp.argmin(x, -1),
    "sort": lambda x: jnp.sort(x, -1),
    "argsort": lambda x: jnp.argsort(x, -1),
    "top_k": lambda x: lax.top_k(x, 20)[1],
    "cumsum": lambda x: lax.cumsum(x, 1),
    "cumprod": lambda x: lax.cumprod(x, 1),
    "cummax": lambda x: lax.cummax(x, 1),
    "cummin": lambda x: lax.cummin(x, 1),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 1),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "cholesky": lambda a: lax.linalg.cholesky(a, symmetrize_input=False),
    "triangular_solve": lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
    "triangular_product": lambda a, b: lax.linalg.cholesky(a, symmetrize_input=False).mT @ b,
    "product": jnp.matmul,
    "solve": jnp.linalg.solve,
    "lu": lambda a: lax.linalg.lu(a)[0],
    "qr": lambda a: jnp.linalg.qr(a),
    "eigh": lambda a: lax.linalg.eigh(a, symmetrize_input=False),
    "svd": lambda a: jnp.linalg.svd(a, full_matrices=False),
    "fft": jnp.fft.fft,
    "rfft": jnp.fft.rfft,
    "fft2": jnp.fft.fft2,
}
