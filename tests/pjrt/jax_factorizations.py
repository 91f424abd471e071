"""Programs of factorizations that only JAX calls, not the package, whose results are unique: each type, one element.

Where LAPACKs may differ (signs, orders, phases) a program gives what the factors make again, or the matrix plus an
error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import linalg

TYPES = ("float32", "float64", "complex64", "complex128")


def transposed(a: Any) -> Any:
    return jnp.swapaxes(a.conj(), -1, -2)


def pivoted_qr(a: Any) -> Any:
    q, r, order = linalg.qr(a, pivoting=True, full_matrices=False)
    return q @ r, order, jnp.abs(r)


def product_with_q(a: Any) -> Any:
    h, tau = jnp.linalg.qr(a, mode="raw")
    h = jnp.swapaxes(h, -1, -2)
    return [linalg.ormqr(h, tau, a, left=left, transpose=t) for left in (True, False) for t in (True, False)]


def svd(a: Any) -> Any:
    wide = jnp.concatenate([a, 2 * a], axis=-1)
    algorithm = {"algorithm": linalg.SvdAlgorithm.QR}
    u, s, vt = linalg.svd(wide, full_matrices=True, **algorithm)
    values = linalg.svd(a, compute_uv=False, **algorithm)
    return u * s[..., None, :] @ vt[..., : a.shape[-1], :], values


def eigenvectors(a: Any) -> Any:
    w, left, right = linalg.eig(a)
    lengths = [jnp.linalg.norm(v, axis=-2) for v in (left, right)]
    return (
        a @ right - right * w[..., None, :] + a,
        transposed(left) @ a - w[..., None] * transposed(left) + a,
        *lengths,
    )


def eigenvalues(a: Any) -> Any:
    return jnp.trace(a, axis1=-1, axis2=-2) - jnp.linalg.eigvals(a).sum(-1) + 1


def schur(a: Any) -> Any:
    form, vectors = linalg.schur(a)
    return vectors @ form @ transposed(vectors), jnp.tril(form, -2) + a


def hessenberg(a: Any) -> Any:
    form, q = jax.scipy.linalg.hessenberg(a, calc_q=True)
    return q @ form @ transposed(q), jnp.tril(form, -2) + a


def tridiagonal(a: Any) -> Any:
    _, diagonal, off_diagonal, _ = linalg.tridiagonal(a + transposed(a), lower=False)
    return diagonal, jnp.abs(off_diagonal)


def tridiagonal_solve(a: Any) -> Any:
    lower, diagonal, upper = a[..., 0, :], a[..., -1, :] + 9, a[..., :, 0]
    return linalg.tridiagonal_solve(lower.at[..., 0].set(0), diagonal, upper.at[..., -1].set(0), a)


def singular_solve(a: Any) -> Any:
    """Inverse iteration: of a singular system the solution is the null space, whatever the right-hand side."""
    n = a.shape[-1]
    ones = jnp.ones(a.shape[:-1], a.dtype)
    second_difference = 2 * ones - (jnp.arange(n) % (n - 1) == 0) if n > 1 else 0 * ones
    x = linalg.tridiagonal_solve(
        (-ones).at[..., 0].set(0), second_difference, (-ones).at[..., -1].set(0), a, perturb_singular=True
    )
    x = x / x[..., :1, :]
    regular = linalg.tridiagonal_solve(0 * ones, a[..., 0, :] + 9, 0 * ones, a, perturb_singular=True)
    return x, regular


def eigh_tridiagonal(a: Any) -> Any:
    n = a.shape[-1]
    if n == 1:
        return a.real
    diagonal, off_diagonal = a.reshape(-1)[:n].real, jnp.ones(n - 1, a.real.dtype)
    matrix = jnp.diag(diagonal) + jnp.diag(off_diagonal, 1) + jnp.diag(off_diagonal, -1)
    values, vectors = jax.scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal)
    return values, matrix @ vectors - vectors * values + matrix, jnp.linalg.norm(vectors, axis=0)


def not_finite(a: Any) -> Any:
    """NaN eigenvalues of such a matrix, and none of the others'."""
    values = jnp.linalg.eigvals(a.at[..., 0, 0].set(jnp.nan)), jnp.linalg.eigvals(a)
    return [jnp.isnan(value).astype("float32") for value in values]


FUNCTIONS = (pivoted_qr, product_with_q, svd, eigenvectors, eigenvalues, schur, hessenberg, tridiagonal,
             tridiagonal_solve, singular_solve, eigh_tridiagonal, not_finite)  # fmt: skip


def program(a: Any) -> Any:
    """All of them, compiled at once."""
    return {function.__name__: function(a) for function in FUNCTIONS}


def operands(random: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Operands and what to call them; 64-bit types need jax_enable_x64."""
    for name, shape in (*((name, (3, 9, 9)) for name in TYPES), ("float32", (1, 1))):
        parts = random.standard_normal((2, *shape))
        yield f"{name} {shape[-1]}", (parts[0] + 1j * parts[1] if name.startswith("complex") else parts[0]).astype(name)
