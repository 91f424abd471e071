"""Cases as PyTorch functions of the same operands, eager, with the memory layout that PyTorch likes for them."""

# pyright: basic, reportMissingImports=false
# torch is not there everywhere.
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from hlo_dispatch.bench import epilogues
from hlo_dispatch.bench.cases import Case
from hlo_dispatch.bench.operations import padding

_DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64, "c64": torch.complex64,
}  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "abs": torch.abs,
    "square": torch.square,
    "exp": torch.exp,
    "round": torch.round,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "gelu_erf": F.gelu,
    "mish": F.mish,
    "clip": lambda y: torch.clamp(y, *epilogues.CLIP),
    "leaky_relu": lambda y: F.leaky_relu(y, epilogues.LEAKY_SLOPE),
    "elu": lambda y: F.elu(y, epilogues.ELU_ALPHA),
    "swish": F.silu,
    "softplus": F.softplus,
    "linear": lambda y: y * epilogues.LINEAR[0] + epilogues.LINEAR[1],
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "pow": lambda y: epilogues.POWER[0] * torch.rsqrt(y),
}
_BINARIES: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


def function(case: Case) -> Callable[..., Any]:
    """The case as a function of what `arguments` returns; results lie in PyTorch's order of dimensions."""
    compute = _operation(case)
    taken = len(case.pattern.operation.operands(case.sizes))

    @torch.inference_mode()
    def run(*operands: Any) -> Any:
        y, others = compute(*operands[:taken]), list(operands[taken:])
        for step in case.pattern.steps:
            if not step.is_binary:
                y = _ACTIVATIONS[step.entry](y)
                continue
            other = others.pop(0)
            if step.operand == epilogues.CHANNEL:
                axis = 1 if case.pattern.operation.spatial else y.ndim - 1
                other = other.reshape([-1 if at == axis else 1 for at in range(y.ndim)])
            y = _BINARIES[step.entry](y, other)
        return y

    return run


def arguments(case: Case, operands: list[np.ndarray]) -> list[Any]:
    """The same values as tensors: (n, c, …) and (k, c, …) where there is space, in the case's order in memory."""
    roles = list(case.operands())
    return [_tensor(case, role, operand) for role, operand in zip(roles, operands, strict=True)]


def result_in_order(case: Case, result: Any) -> np.ndarray:
    """A result's values in the case's own order of dimensions, as float64."""
    array = result.to(torch.float64).numpy() if not result.is_complex() else result.numpy()
    if not case.pattern.operation.spatial or case.is_channels_first:
        return array
    if case.pattern.operation.name.endswith("weights_gradient"):
        return np.moveaxis(array, (0, 1), (-1, -2))
    return np.moveaxis(array, 1, -1)


def _tensor(case: Case, role: str, operand: np.ndarray) -> Any:
    dtype = _DTYPES[case.dtype]
    wide = operand.astype(np.float32) if case.dtype in ("bf16", "f16") else operand
    tensor = torch.from_numpy(np.array(wide)).to(dtype)
    spatial = case.pattern.operation.spatial
    if not spatial or tensor.ndim != spatial + 2 or case.is_channels_first:
        return tensor
    # A permuted view keeps the channels last in memory, which is what PyTorch calls channels_last.
    space = range(1, spatial + 1)
    if role == "weights":
        view = tensor.permute(spatial + 1, spatial, *range(spatial))
        if case.pattern.operation.name == "conv_transpose":
            # PyTorch's has the inputs first, and reads the window the other way round.
            return tensor.permute(spatial, spatial + 1, *range(spatial)).flip(-1, -2).contiguous()
        return view.contiguous(memory_format=torch.channels_last) if spatial == 2 else view.contiguous()
    return tensor.permute(0, spatial + 1, *space)


def _operation(case: Case) -> Callable[..., Any]:
    name, z = case.pattern.operation.name, case.sizes
    if name == "conv_transpose":
        # SAME: the result has stride times the source's size.
        extra = z["r"] - z["stride"]
        if extra < 0 or extra % 2:
            raise NotImplementedError(f"PyTorch has no such padding (window {z['r']}, stride {z['stride']})")
        options = {"stride": z["stride"], "padding": extra // 2}
        if case.is_channels_first:
            return lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1).flip(-1, -2), **options)
        return lambda x, w: F.conv_transpose2d(x, w, **options)
    if "conv" in name:
        return _convolution(case)
    if name == "max_pool":
        return lambda x: F.max_pool2d(x, z["r"], z["stride"])
    if name == "avg_pool":
        return lambda x: F.avg_pool2d(x, z["r"], z["stride"])
    if name == "matmul":
        return lambda x, w: x @ (w.mT if z["transposed"] else w)
    if name == "attention":
        return partial(F.scaled_dot_product_attention, is_causal=bool(z["causal"]))
    return _PLAIN[name]


def _convolution(case: Case) -> Callable[..., Any]:
    operation, z = case.pattern.operation, case.sizes
    groups = z["c"] if operation.name == "depthwise_conv" else z["groups"]
    options = {"stride": z["stride"], "padding": padding(z), "dilation": z["dilation"], "groups": groups}
    if operation.name.endswith("_gradient"):
        of_weights = operation.name.endswith("weights_gradient")
        # conv2d_weight and conv2d_input want the shape of what they compute in PyTorch's order.
        c, k, r = z["c"], z["k"], z["r"]
        if of_weights:
            size = (k, c // z["groups"], r, r)
            return lambda x, y: torch.nn.grad.conv2d_weight(x, size, y, **options)
        size = (z["n"], c, z["h"], z["w"])
        return lambda w, y: torch.nn.grad.conv2d_input(size, w, y, **options)
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[operation.spatial]
    return lambda x, w: convolve(x, w, **options)


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], scale, bias, 1e-6)


_PLAIN: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "argmax": lambda x: torch.argmax(x, -1).int(),
    "argmin": lambda x: torch.argmin(x, -1).int(),
    "sort": lambda x: torch.sort(x, -1).values,
    "argsort": lambda x: torch.argsort(x, -1, stable=True).int(),
    "top_k": lambda x: torch.topk(x, 20, -1).indices.int(),
    "cumsum": lambda x: torch.cumsum(x, -1),
    "cumprod": lambda x: torch.cumprod(x, -1),
    "cummax": lambda x: torch.cummax(x, -1).values,
    "cummin": lambda x: torch.cummin(x, -1).values,
    "cumlogsumexp": lambda x: torch.logcumsumexp(x, -1),
    "layer_norm": _layer_norm,
    "rms_norm": lambda x, scale: F.rms_norm(x, x.shape[-1:], scale, 1e-6),
    "cholesky": torch.linalg.cholesky,
    "triangular_solve": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    "triangular_product": lambda a, b: torch.linalg.cholesky(a).mT @ b,
    "product": torch.matmul,
    "solve": torch.linalg.solve,
    "lu": lambda a: torch.linalg.lu_factor(a)[0],
    "qr": lambda a: torch.linalg.qr(a),
    "eigh": lambda a: torch.linalg.eigh(a),
    "svd": lambda a: torch.linalg.svd(a, full_matrices=False),
    "fft": torch.fft.fft,
    "rfft": torch.fft.rfft,
    "fft2": torch.fft.fft2,
}
