"""oneDNN's post-op algorithms: names and formulas.

Names are oneDNN's without `dnnl_eltwise_` / `dnnl_binary_`, exactly as they travel in a custom-call.
"""

from __future__ import annotations

from functools import cache

from hlo_dispatch.pattern.formula import Formula, parse

ELTWISE: dict[str, str] = {
    "abs": "abs(x)",
    "clip": "clip(x, alpha, beta)",
    "elu": "where(x > 0, x, alpha * expm1(x))",
    "exp": "exp(x)",
    "gelu_erf": "0.5 * x * erfc(-x / sqrt(2))",
    "gelu_tanh": "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))",
    "hardsigmoid": "clip(alpha * x + beta, 0, 1)",
    "hardswish": "x * clip(alpha * x + beta, 0, 1)",
    "linear": "alpha * x + beta",
    "log": "log(x)",
    "logistic": "sigmoid(x)",
    "mish": "x * tanh(softplus(x))",
    "pow": "alpha * x**beta",
    "relu": "where(x > 0, x, alpha * x)",
    "round": "round(x)",
    "soft_relu": "softplus(alpha * x) / alpha",
    "sqrt": "sqrt(x)",
    "square": "x * x",
    "swish": "x * sigmoid(alpha * x)",
    "tanh": "tanh(x)",
}
"""Eltwise algorithm → its formula, against which a table's binding is proved at load time."""


@cache
def meaning(algorithm: str) -> Formula:
    """The formula of an eltwise algorithm; its free names tell which of alpha and beta it reads."""
    return parse(ELTWISE[algorithm], ("x", "alpha", "beta"))


BINARY: dict[str, str] = {
    "add": "y + other",
    "div": "y / other",
    "max": "max(y, other)",
    "min": "min(y, other)",
    "mul": "y * other",
    "sub": "y - other",
}

OPCODES: dict[str, str] = {
    "add": BINARY["add"],
    "subtract": BINARY["sub"],
    "multiply": BINARY["mul"],
    "divide": BINARY["div"],
    "maximum": BINARY["max"],
    "minimum": BINARY["min"],
}
"""HLO opcodes that a binary epilogue may stand for, and what they compute."""


@cache
def binary_meaning(formula: str) -> Formula:
    """The formula of a binary algorithm or opcode, in y and other."""
    return parse(formula, ("y", "other"))


MAX_POST_OPS = 32
"""Maximum number of post-ops of a oneDNN primitive."""

LIBRARIES: tuple[str, ...] = ("onednn", "onemkl", "svml", "scipy", "blocked", "own")

DTYPES: tuple[str, ...] = ("f32", "bf16", "f16")

ANCHOR_DTYPES: tuple[str, ...] = (*DTYPES, "f64", "s8", "u8", "s16", "s32")
"""Element types that an anchor's kernel may read."""
