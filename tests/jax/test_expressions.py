"""Expressions people write, each with how many kernel calls it must become and what may be left outside them.

An expression is matched when every anchor is one call and no arithmetic is left in the program: the optimized
HLO then holds nothing but calls, renamings and, where said, layout changes. XLA's own oneDNN rewriter leaves
a loop behind most of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, nn

from processor import skip_without
from side_by_side import assert_agree, run_both

SILENT = frozenset("parameter custom-call get-tuple-element bitcast tuple constant".split())
MOVING = SILENT | {"copy", "transpose", "fusion", "reverse"}


def conv(x, w, strides=(1, 1), groups=1, labels=("NHWC", "HWIO", "NHWC")):
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=labels, feature_group_count=groups)


def squares(w, x, **options):
    return jax.grad(lambda w, x: jnp.sum(conv(x, w, **options) ** 2), (0, 1))(w, x)


X, W, B = (48, 33), (33, 65), (65,)
IMAGE, KERNEL = (2, 9, 11, 16), (3, 3, 16, 24)
# name: (expression, shapes, kernel calls, opcodes that may be left)
EXPRESSIONS: dict[str, tuple[Callable, tuple, int, frozenset[str]]] = {
    "1 relu": (lambda x, w, b: nn.relu(x @ w + b), (X, W, B), 1, SILENT),
    "2 gelu, exact": (lambda x, w, b: nn.gelu(x @ w + b, approximate=False), (X, W, B), 1, SILENT),
    "3 gelu, tanh": (lambda x, w, b: nn.gelu(x @ w + b, approximate=True), (X, W, B), 1, SILENT),
    "4 gated unit": (
        lambda x, g, u, d: (nn.silu(x @ g) * (x @ u)) @ d, (X, W, W, (65, 33)), 3, SILENT,
    ),
    "5 several adds": (lambda x, w, b, r, c: (x @ w + b) + r + c, (X, W, B, (48, 65), B), 1, SILENT),
    "6 clip": (lambda x, w, b: jnp.clip(x @ w + b, 0.0, 6.0), (X, W, B), 1, SILENT),
    "6 hard_swish": (lambda x, w, b: nn.hard_swish(x @ w + b), (X, W, B), 1, SILENT),
    "6 leaky_relu": (lambda x, w, b: nn.leaky_relu(x @ w + b, 0.1), (X, W, B), 1, SILENT),
    "6 elu": (lambda x, w, b: nn.elu(x @ w + b), (X, W, B), 1, SILENT),
    "7 scaled tanh": (lambda x, w: 50.0 * jnp.tanh(0.02 * (x @ w)), (X, W), 1, SILENT),
    "9 attention scores": (
        lambda q, k, mask: jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125 + mask,
        ((2, 17, 4, 16), (2, 17, 4, 16), (2, 1, 17, 17)), 1, SILENT,
    ),
    "10 strided": (lambda x, w, b: nn.relu(conv(x, w, (2, 2)) + b), (IMAGE, KERNEL, (24,)), 1, SILENT),
    # Scale and shift vectors of the batch norm are computed once, in front of the call.
    "11 batch norm, residual": (
        lambda x, w, m, g, v, b, r: nn.relu((conv(x, w) - m) * (g * lax.rsqrt(jnp.abs(v) + 1e-5)) + b + r),
        (IMAGE, KERNEL, (24,), (24,), (24,), (24,), (2, 9, 11, 24)), 1, SILENT | {"fusion"},
    ),
    "12 inverted residual": (
        lambda x, w, b, d, c: nn.relu6(conv(nn.relu6(conv(x, w) + b), d, groups=24) + c),
        (IMAGE, (1, 1, 16, 24), (24,), (3, 3, 1, 24), (24,)), 2, SILENT,
    ),
    "13 three dimensions": (
        lambda x, w, b: nn.elu(conv(x, w, (1, 1, 1), labels=("NDHWC", "DHWIO", "NDHWC")) + b),
        ((1, 5, 7, 9, 8), (3, 3, 3, 8, 16), (16,)), 1, SILENT,
    ),
    "13 one dimension": (
        lambda x, w, b: nn.gelu(conv(x, w, (1,), labels=("NWC", "WIO", "NWC")) + b),
        ((2, 31, 8), (3, 8, 16), (16,)), 1, SILENT,
    ),
    "14 gradients": (squares, (KERNEL, IMAGE), 3, MOVING),
    "14 gradients, strided": (lambda w, x: squares(w, x, strides=(2, 2)), (KERNEL, IMAGE), 3, MOVING),
    "14 gradients, depthwise": (lambda w, x: squares(w, x, groups=16), ((3, 3, 1, 16), IMAGE), 3, MOVING),
    "15 transposed": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (IMAGE, KERNEL), 1, SILENT),
    "15 channels first": (
        lambda x, w: conv(x, w, labels=("NCHW", "OIHW", "NCHW")), ((2, 16, 9, 11), (24, 16, 3, 3)), 1, MOVING,
    ),
    "18 queries, keys, values": (
        lambda x, q, k, v: (x @ q, x @ k, x @ v), (X, (33, 33), (33, 33), (33, 33)), 3, SILENT,
    ),
}  # fmt: skip


def arrays(shapes, dtype) -> list[jax.Array]:
    random = np.random.default_rng(len(shapes))
    return [jnp.asarray(random.standard_normal(shape) / 2, dtype) for shape in shapes]


def left_over(text: str) -> set[str]:
    """Opcodes of the optimized HLO's entry computation."""
    entry = text[text.index("\nENTRY") :]
    return set(re.findall(r"^  (?:ROOT )?%\S+ = .*? ([a-z][a-z\-]*)\(", entry, re.MULTILINE))


def check(program: Callable, arguments: list, calls: int, allowed: frozenset[str]) -> None:
    both = run_both(program, *arguments)
    assert_agree(both)
    assert both.calls == calls
    left = left_over(both.text)
    assert "custom-call" in left, "the entry computation could not be read"
    assert left <= allowed


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_f32(name: str) -> None:
    program, shapes, calls, allowed = EXPRESSIONS[name]
    check(program, arrays(shapes, jnp.float32), calls, allowed)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_bf16(name: str) -> None:
    skip_without("bf16")
    program, shapes, calls, allowed = EXPRESSIONS[name]
    check(program, arrays(shapes, jnp.bfloat16), calls, allowed)


def test_8_mixed_precision() -> None:
    skip_without("bf16")
    x, w = arrays((X, W), jnp.bfloat16)
    (b,) = arrays((B,), jnp.float32)

    def program(x, w, b):
        return nn.sigmoid(jnp.dot(x, w, preferred_element_type=jnp.float32) + b).astype(jnp.bfloat16)

    check(program, [x, w, b], 1, SILENT)
