"""The smallest example: a convolution with a relu becomes one custom-call, `abs(sqrt(x))` stays XLA's."""

# pyright: basic
# The frameworks have no complete type hints.
from __future__ import annotations

import re
from typing import Any

from hlo_dispatch.demo.models import Workload


def conv_relu() -> Workload:
    """relu(conv(lhs, rhs)) on float32[2,1,9,9] and float32[1,1,4,4]."""
    import jax
    import numpy as np

    def conv_relu(lhs: Any, rhs: Any) -> Any:
        out = jax.lax.conv_with_general_padding(lhs, rhs, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
        return jax.nn.relu(out)

    generator = np.random.default_rng(0)
    lhs = generator.standard_normal((2, 1, 9, 9)).astype("float32")
    rhs = generator.standard_normal((1, 1, 4, 4)).astype("float32")
    return Workload("conv-relu", "relu(conv) on f32[2,1,9,9] and f32[1,1,4,4]", conv_relu, (lhs, rhs))


def abs_sqrt() -> Workload:
    """abs(sqrt(x)) on float32[1024]: nothing here is worth a vendor kernel."""
    import jax.numpy as jnp
    import numpy as np

    def abs_sqrt(x: Any) -> Any:
        return jnp.abs(jnp.sqrt(x))

    return Workload("abs-sqrt", "abs(sqrt(x)) on f32[1024]", abs_sqrt, (np.linspace(0, 4, 1024, dtype="float32"),))


def exact_conv_relu(lhs: Any, rhs: Any) -> Any:
    """Reference of `conv_relu` in float64."""
    import numpy as np

    windows = np.lib.stride_tricks.sliding_window_view(lhs[:, 0].astype("float64"), rhs.shape[2:], axis=(1, 2))
    return np.maximum(np.einsum("nyxij,ij->nyx", windows, rhs[0, 0].astype("float64")), 0)[:, None]


def custom_calls(text: str) -> list[str]:
    """The lines of optimized HLO that call our kernels, without their metadata."""
    return [line for line in code(text) if 'custom_call_target="hlo_dispatch.' in line]


def code(text: str) -> list[str]:
    """The lines of optimized HLO that compute something: no source places, which differ by who asked."""
    lines = [re.sub(r", metadata=\{[^}]*\}", "", line.strip()) for line in text.splitlines()]
    return [line for line in lines if line.startswith(("%", "ROOT ", "ENTRY "))]
