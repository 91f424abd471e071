"""Factorization results: comparable quantities where a LAPACK routine's results are not unique.

Eigenvectors and singular vectors are unique only up to sign (or phase, where they are complex), so two right results
may differ. Their product and their orthonormality do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule


def comparable(extracted: ExtractedModule, results: Sequence[Any]) -> list[Any]:
    """Quantities of the results that are equal up to rounding for all right results."""
    if extracted.routine not in ("eigh", "svd"):
        return list(results)
    found = {
        name: _logical(np.asarray(value), dimensions)
        for (name, dimensions), value in zip(extracted.logical, results, strict=True)
    }
    checked = []
    if extracted.routine == "eigh" and {"v", "w"} <= found.keys():
        vectors = found.pop("v")
        checked = [(vectors * found["w"][..., None, :]) @ _adjoint(vectors), _adjoint(vectors) @ vectors]
    elif {"u", "s", "vt"} <= found.keys():
        left, right = found.pop("u"), found.pop("vt")
        count = found["s"].shape[-1]
        product = (left[..., :count] * found["s"][..., None, :]) @ right[..., :count, :]
        checked = [product, _adjoint(left) @ left, right @ _adjoint(right)]
    return [*checked, *found.values()]


def _logical(value: Any, dimensions: tuple[tuple[int, int], ...]) -> Any:
    """The strided array in the buffer, in double precision."""
    flat = np.ascontiguousarray(value).reshape(-1)
    sizes = [size for size, _ in dimensions]
    strides = [stride * flat.itemsize for _, stride in dimensions]
    array = np.lib.stride_tricks.as_strided(flat, sizes, strides)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _adjoint(value: Any) -> Any:
    return np.conj(np.swapaxes(value, -1, -2))
