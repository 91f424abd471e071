"""What oneDNN's post-op algorithms are called and which of their two numbers they read.

Names are oneDNN's without `dnnl_eltwise_` / `dnnl_binary_`, exactly as they travel in a custom-call.
"""

from __future__ import annotations

ELTWISE: dict[str, tuple[str, ...]] = {
    "abs": (),
    "clip": ("alpha", "beta"),
    "elu": ("alpha",),
    "exp": (),
    "gelu_erf": (),
    "gelu_tanh": (),
    "hardsigmoid": ("alpha", "beta"),
    "hardswish": ("alpha", "beta"),
    "linear": ("alpha", "beta"),
    "log": (),
    "logistic": (),
    "mish": (),
    "pow": ("alpha", "beta"),
    "relu": ("alpha",),
    "round": (),
    "soft_relu": ("alpha",),
    "sqrt": (),
    "square": (),
    "swish": ("alpha",),
    "tanh": (),
}

BINARY: tuple[str, ...] = ("add", "div", "max", "min", "mul", "sub")

OPCODES: tuple[str, ...] = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
"""HLO opcodes that a binary epilogue may stand for."""

ANCHOR_OPCODES: tuple[str, ...] = ("convolution", "dot")

LIBRARIES: tuple[str, ...] = ("onednn", "onemkl")

DTYPES: tuple[str, ...] = ("f32", "bf16", "f16")
