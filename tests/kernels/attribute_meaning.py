"""Reference semantics of a call's attributes: in float64, from the strides, with NumPy alone.

The kernels' own code has no part in it, so that a call which was accepted although its attributes lie is found out:
its operands would be read, or its result written, where it has no elements, or the result is another.
"""

from __future__ import annotations

from typing import Any

import family_attention
import family_elementwise
import family_recurrent
import numpy as np
import onednn_meaning
from numpy.lib.stride_tricks import as_strided
from wire_calls import WireCall

Flat = dict[str, np.ndarray]
_PRECISE = {"f64", "c128"}


class Beyond(Exception):
    """An attribute names an element that the buffer does not have."""


def difference(call: WireCall, given: list[np.ndarray], results: list[np.ndarray]) -> str | None:
    """What is wrong about these results; None where they are right."""
    # XLA leaves out what has no elements, and nobody reads what the advice returns.
    if call.name == "own.huge_pages" or all(result.size == 0 for result in results):
        return None
    said = _plain(call.attributes)
    try:
        pairs, tolerance = _pairs(call, said, given, results)
    except Beyond as beyond:
        return f"accepted: {beyond}"
    for what, found, expected in pairs:
        if np.size(found) != np.size(expected):
            return f"{what}: sizes {np.shape(found)} for {np.shape(expected)}"
        if np.size(expected) == 0:
            continue
        distance = np.max(np.abs(np.reshape(found, np.shape(expected)) - expected))
        if not distance <= tolerance * (1 + np.max(np.abs(expected))):
            return f"{what}: off by {distance}"
    return None


def _pairs(
    call: WireCall, said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray]
) -> tuple[list[tuple[str, np.ndarray, np.ndarray]], float]:
    """(what, found, expected), and the tolerance."""
    if call.name == "own.attention":
        types = {said[f"{role}_type"] for role in ("query", "key", "value", "dst")}
        return family_attention.pairs(said, given, results, placed), 1e-4 if types == {"f32"} else 5e-2
    if call.name == "onednn.recurrent":
        tolerance = 1e-4 if said["weights_type"] == said["src_type"] == "f32" else 5e-2
        return family_recurrent.pairs(said, given, results, placed), tolerance
    if call.name == "svml.elementwise":
        return family_elementwise.pairs(said, given, results, placed), 1e-5
    if call.name.startswith(("onednn.", "onemkl.gemm", "onemkl.pack", "own.")):
        # Members of call groups are in f32.
        is_precise = said.get("src_type", "f32") == said.get("dst_type", "f32") == "f32"
        return onednn_meaning.pairs(call.name, said, given, results, placed), 1e-4 if is_precise else 2e-2
    return _MEANINGS[call.name.split(".")[1]](said, given, results), 1e-9 if said["type"] in _PRECISE else 2e-3


def placed(said: dict[str, Any], role: str, buffer: np.ndarray, offset: int = 0) -> np.ndarray:
    """The elements that <role>_dims and <role>_strides name, in the widest type of their kind."""
    flat = np.ascontiguousarray(buffer).reshape(-1)
    flat = flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64)
    dims, strides = said[f"{role}_dims"], said[f"{role}_strides"]
    if 0 in dims:
        return np.zeros(dims, flat.dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(dims, strides, strict=True))
    if offset < 0 or last >= flat.size:
        raise Beyond(f"{role} has element {last} of {flat.size}")
    # A stride along one element means nothing, and may be too large for NumPy.
    steps = [0 if size == 1 else stride * flat.itemsize for size, stride in zip(dims, strides, strict=True)]
    return as_strided(flat[offset:], dims, steps)


def _plain(attributes: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: _plain(value) if kind == "dictionary" else value for name, (kind, value) in attributes.items()}


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2).conj()


def _hermitian(said: dict[str, Any], a: np.ndarray) -> np.ndarray:
    """What of `a` the routine reads: one triangle, or the mean of both."""
    if said.get("symmetrised"):
        return (a + np.swapaxes(a, -1, -2)) / 2
    half = np.tril(a) if said["uplo"] == ord("L") else np.triu(a)
    diagonal = np.einsum("...ii->...i", a).real[..., None] * np.eye(a.shape[-1])
    strict = half - np.einsum("...ii->...i", a)[..., None] * np.eye(a.shape[-1])
    return strict + _adjoint(strict) + diagonal


def _cholesky(said, given, results):
    a, factor = placed(said, "a", given[0]), placed(said, "factor", results[0])
    lower = said["uplo"] == ord("L")
    triangle = np.tril(factor) if lower else np.triu(factor)
    whole = triangle @ _adjoint(triangle) if lower else _adjoint(triangle) @ triangle
    expected = _hermitian(said, a)
    good = (results[1] == 0).reshape(a.shape[:-2])
    return [("factor", whole[good], expected[good])]


def _triangular_solve(said, given, results):
    a, b, x = placed(said, "a", given[0]), placed(said, "b", given[1]), placed(said, "x", results[0])
    triangle = np.tril(a) if said["uplo"] == ord("L") else np.triu(a)
    if said["diag"] == ord("U"):
        triangle = triangle + (1 - np.einsum("...ii->...i", a))[..., None] * np.eye(a.shape[-1])
    turned = {"N": triangle, "T": np.swapaxes(triangle, -1, -2), "C": _adjoint(triangle)}[chr(said["trans_x"])]
    # Relative to what is multiplied: ones on the diagonal make for large solutions.
    size = max(1.0, np.max(np.abs(x), initial=0) * np.max(np.abs(a), initial=0))
    product = turned @ x if said["side"] == ord("L") else x @ turned
    return [("x", (product - b) / size, np.zeros_like(b))]


def _lu(said, given, results):
    a, lu = placed(said, "a", given[0]), placed(said, "lu", results[0])
    m, n = a.shape[-2:]
    least = min(m, n)
    lower = np.tril(lu[..., :, :least], -1) + np.eye(m, least)
    product = lower @ np.triu(lu[..., :least, :])
    permuted = a.reshape(-1, m, n).copy() if a.size else np.zeros((0, m, n))
    pivots = results[1].reshape(len(permuted), least) if a.size else []
    for matrix, rows in zip(permuted, pivots, strict=True):
        for i, row in enumerate(rows):
            matrix[[i, row - 1]] = matrix[[row - 1, i]]
    return [("lu", product, permuted.reshape(a.shape))]


def _qr(said, given, results):
    a, qr = placed(said, "a", given[0]), placed(said, "qr", results[0])
    r = np.triu(qr[..., : min(a.shape[-2:]), :])
    return [("r", _adjoint(r) @ r, _adjoint(a) @ a)]


def _householder_product(said, given, results):
    a, q = placed(said, "a", given[0]), placed(said, "q", results[0])
    m, n = a.shape[-2:]
    count = said["tau_dims"][-1]
    tau = given[1].reshape(-1, count) if count else np.zeros((int(np.prod(a.shape[:-2])), 0))
    expected = np.zeros(a.shape, a.dtype).reshape(-1, m, n)
    for number, matrix in enumerate(a.reshape(-1, m, n)):
        whole = np.eye(m, dtype=a.dtype)
        for i in range(count):
            v = np.concatenate([np.zeros(i), [1], matrix[i + 1 :, i]])[:, None]
            whole = whole @ (np.eye(m) - tau[number, i] * v @ v.conj().T)
        expected[number] = whole[:, :n]
    return [("q", q, expected.reshape(a.shape))]


def _eigh(said, given, results):
    a, v = placed(said, "a", given[0]), placed(said, "v", results[0])
    matrix = _hermitian(said, a)
    w = results[1].reshape(a.shape[:-1]).astype(np.float64)
    found = [("w", w, np.linalg.eigvalsh(matrix) if a.size else w)]
    return [*found, ("v", matrix @ v, v * w[..., None, :])] if said["mode"] == ord("V") else found


def _svd(said, given, results):
    a = placed(said, "a", given[0])
    s = results[1].reshape(*a.shape[:-2], min(a.shape[-2:])).astype(np.float64)
    found = [("s", s, np.linalg.svd(a, compute_uv=False) if a.size else s)]
    if said["mode"] == ord("N"):
        return found
    u, vt = placed(said, "u", results[2]), placed(said, "vt", results[3])
    count = s.shape[-1]
    identity = np.broadcast_to(np.eye(u.shape[-1]), (*u.shape[:-2], u.shape[-1], u.shape[-1]))
    return [*found, ("u", _adjoint(u) @ u, identity), ("a", (u[..., :count] * s[..., None, :]) @ vt[..., :count, :], a)]


def _product(said, given, results):
    a, b = placed(said, "a", given[0]), placed(said, "b", given[1])
    return [("product", placed(said, "product", results[0]), a @ b)]


def _fft(said, given, results):
    source, found = placed(said, "src", given[0]), placed(said, "dst", results[0])
    axes = tuple(range(source.ndim - said["rank"], source.ndim))
    kind = said["fft_type"]
    if kind == 3:
        expected = np.fft.irfftn(source, [found.shape[axis] for axis in axes], axes)
    else:
        expected = (np.fft.fftn, np.fft.ifftn, np.fft.rfftn)[kind](source, axes=axes)
    return [("dst", found, expected)]


_MEANINGS = {
    "cholesky": _cholesky, "triangular_solve": _triangular_solve, "lu": _lu, "qr": _qr, "eigh": _eigh, "svd": _svd,
    "householder_product": _householder_product, "product": _product, "triangular_product": _product, "fft": _fft,
}  # fmt: skip
