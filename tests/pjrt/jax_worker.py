"""A host that is JAX on the plugin: runs each program and writes its results, then those of jaxlib's own CPU client.

jax_worker.py RESULTS
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax_factorizations
import numpy as np

random = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return random.standard_normal(shape, np.float32)


def convolution(x: Any, kernel: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(y)


def layers(x: Any, w: Any) -> Any:
    """Eight dense layers, the weights stacked."""
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, w)


def counted(x: Any, w: Any) -> Any:
    return jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jax.nn.relu(s[1] @ w)), (0, x))


def branch(flag: Any, x: Any, w: Any) -> Any:
    return jax.lax.cond(flag, lambda: jax.nn.relu(x @ w), lambda: x - 1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 8, axis=-1) @ v


def gated(x: Any, scale: Any, residual: Any) -> Any:
    """The kernel of a user's table."""
    return x * jax.nn.sigmoid(1.5 * x) * scale + residual


def on_two_devices(x: Any, w: Any) -> Any:
    """Rows of x on each, and a sum over both."""
    mesh = jax.sharding.Mesh(jax.config.jax_default_device.client.devices()[:2], "rows")
    rows, everywhere = jax.sharding.PartitionSpec("rows"), jax.sharding.PartitionSpec()

    def product(x: Any, w: Any) -> Any:
        y = jax.nn.relu(x @ w)
        return y, jax.lax.psum(y.sum(0), "rows")

    specs = {"in_specs": (rows, everywhere), "out_specs": (rows, everywhere)}
    return jax.shard_map(product, mesh=mesh, **specs)(x, w)


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def definite(x: Any) -> Any:
    return x @ x.T / x.shape[-1] + jnp.eye(x.shape[0])


SQUARE = normal(33, 33)
WEIGHTS = normal(96, 64)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "convolution": (convolution, (normal(2, 17, 19, 16), normal(3, 3, 16, 24))),
    "dense layers": (lambda x: jax.nn.gelu(x @ WEIGHTS) @ WEIGHTS.T, (normal(31, 96),)),
    "attention": (attention, (normal(2, 4, 50, 64), normal(2, 4, 50, 64), normal(2, 4, 50, 64))),
    "scan": (layers, (normal(8, 64), normal(8, 64, 64) / 8)),
    "while": (counted, (normal(8, 64), normal(64, 64) / 8)),
    "cond": (branch, (np.bool_(True), normal(8, 64), normal(64, 64))),
    "gradient": (jax.grad(loss), (normal(48, 40), normal(32, 48))),
    "vmap": (jax.vmap(lambda x, w: jax.nn.relu(x @ w)), (normal(3, 32, 48), normal(3, 48, 40))),
    "sort": (lambda x: jnp.sort(x, axis=-1), (normal(7, 100),)),
    "fft": (jnp.fft.rfft, (normal(4, 64),)),
    "random": (lambda key: jax.random.normal(jax.random.key(key), (5, 9)), (3,)),
    "scatter": (lambda x, i: x.at[i].add(2.0), (normal(20, 4), np.array([1, 1, 7]))),
    "cholesky": (lambda x: jnp.linalg.cholesky(definite(x)), (SQUARE,)),
    "triangular solve": (
        lambda a, b: jax.scipy.linalg.solve_triangular(jnp.tril(definite(a)), b, lower=True), (SQUARE, normal(33, 5))
    ),
    "solve": (lambda a, b: jnp.linalg.solve(definite(a), b), (SQUARE, normal(33, 5))),
    "qr": (lambda a: jnp.abs(jnp.linalg.qr(a)[1]), (normal(30, 12),)),
    "eigenvalues": (lambda a: jnp.linalg.eigvalsh(definite(a)), (SQUARE,)),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), (normal(30, 12),)),
    "user's kernel": (gated, (normal(3, 40, 64), normal(64), normal(3, 40, 64))),
    "two devices": (on_two_devices, (normal(64, 48), normal(48, 40))),
    "empty": (lambda x: x @ jnp.zeros((0, 3)), (normal(4, 0),)),
}  # fmt: skip

donating = jax.jit(lambda x, w: jax.nn.relu(x @ w), donate_argnums=0)
folder = Path(sys.argv[1])
library = ctypes.CDLL(os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"].partition(":")[2])
library.hlo_dispatch_pjrt_failure.restype = ctypes.c_char_p
dispatched: dict[str, int] = {}
for device in (jax.devices("hd")[0], jax.devices("cpu")[0]):
    with jax.default_device(device):
        results = {}
        for name, (function, operands) in PROGRAMS.items():
            before = library.hlo_dispatch_pjrt_count(b"dispatched")
            leaves = jax.tree.leaves(jax.jit(function)(*operands))
            results |= {f"{name} {number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
            dispatched[name] = dispatched.get(name, 0) + library.hlo_dispatch_pjrt_count(b"dispatched") - before
        with jax.enable_x64(True):
            for name, operand in jax_factorizations.operands(np.random.default_rng(1)):
                made = jax.tree.leaves_with_path(jax.jit(jax_factorizations.program)(operand))
                results |= {f"{name}{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in made}
        given = jnp.asarray(normal(64, 64) * 0 + 1)
        results["donation 0"] = np.asarray(donating(given, np.eye(64, dtype=np.float32)))
        deleted = given.is_deleted()
        np.savez(folder / f"{device.client.platform_version.count('hlo-dispatch')}.npz", **results)
        if dispatched.get("donated") is None:
            dispatched["donated"] = int(deleted)
print(json.dumps({"dispatched": dispatched, "failure": library.hlo_dispatch_pjrt_failure().decode()}))
