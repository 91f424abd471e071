"""Valid calls of every target, as data that a test can change before it sends them to a process of their own.

An attribute is a pair of its type and its value, so that it can have a wrong one and be written as JSON:
``["i64", 3]``, ``["i64s", [2, 3]]``, ``["f32", 0.5]``, ``["text", "plain"]``, ``["dictionary", {...}]``.

A kernel family may bring its own in a file of its own, family_<name>.py: `valid_calls()`, and, for oneDNN's, `formula`
in float64 (onednn_meaning.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hlo_dispatch import _kernels
from hlo_dispatch.vendor import libraries, registry
from processor import lacks_onemkl

Attributes = dict[str, list[Any]]
LOADED = "<loaded>"
"""Stands for the version of the library that the process has loaded."""


@dataclass
class Array:
    """An operand's or a result's type, as HLO writes it, and sizes."""

    type: str
    dims: list[int]


@dataclass
class WireCall:
    """One custom-call, exactly as an executable would have it."""

    name: str
    """The kernel's; its target is hlo_dispatch.<name>."""
    attributes: Attributes
    operands: list[Array]
    results: list[Array]
    says: str = field(default="")
    """What was changed in it."""

    def but(self, **changes: Any) -> WireCall:
        """The same with other attributes (None: without it)."""
        typed = {name: None if value is None else tagged(value) for name, value in changes.items()}
        merged = {**self.attributes, **typed}
        kept = {name: value for name, value in merged.items() if value is not None}
        return WireCall(self.name, kept, self.operands, self.results, f"{changes}")


def tagged(value: Any) -> list[Any]:
    """An attribute of the type that a Python value usually has."""
    if isinstance(value, dict):
        return ["dictionary", {name: tagged(entry) for name, entry in value.items()}]
    if isinstance(value, str):
        return ["text", value]
    if isinstance(value, float):
        return ["f32", value]
    return ["i64", value] if isinstance(value, int) else ["i64s", list(value)]


def strides(dims: Sequence[int], *, by_column: bool = False) -> list[int]:
    """Of a dense array, the last two dimensions exchanged if `by_column`."""
    order = list(range(len(dims)))
    if by_column:
        order[-2:] = order[-1], order[-2]
    steps, step = [0] * len(dims), 1
    for axis in reversed(order):
        steps[axis], step = step, step * dims[axis]
    return steps


def channels_last(dims: Sequence[int]) -> list[int]:
    """Of a dense array whose second dimension is innermost."""
    inner = strides([dims[0], *dims[2:], dims[1]])
    return [inner[0], inner[-1], *inner[1:-1]]


def _call(name: str, attributes: dict[str, Any], operands: list[Array], results: list[Array]) -> WireCall:
    common = {"abi": 1, "library": LOADED}
    return WireCall(name, {key: tagged(value) for key, value in (common | attributes).items()}, operands, results)


# --- linear algebra ---------------------------------------------------------------------------------------------

_REAL = {"f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64"}


def _matrices(by_column: bool, **shapes: Sequence[int]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for role, dims in shapes.items():
        described[f"{role}_dims"] = list(dims)
        described[f"{role}_strides"] = strides(dims, by_column=by_column)
    return described


def _square(folder: str, dtype: str, by_column: bool, n: int, batch: Sequence[int]) -> list[WireCall]:
    a, vector = [*batch, n, n], [*batch, n]
    array, info = Array(dtype, a), Array("s32", list(batch))
    type_ = {"type": dtype}
    uplo = {"uplo": ord("L")}
    solve = {"side": ord("L"), "trans_x": ord("N"), "diag": ord("N")} | uplo
    b = [*batch, n, 3]
    made = [
        _call(f"{folder}.cholesky", type_ | uplo | _matrices(by_column, a=a, factor=a), [array], [array, info]),
        _call(f"{folder}.triangular_solve", type_ | solve | _matrices(by_column, a=a, b=b, x=b),
              [array, Array(dtype, b)], [Array(dtype, b)]),
        _call(f"{folder}.lu", type_ | _matrices(by_column, a=a, lu=a), [array], [array, Array("s32", vector), info]),
    ]  # fmt: skip
    if folder == "blocked":
        product = type_ | _matrices(by_column, a=a, b=b, product=b)
        made.append(_call("blocked.triangular_product", product, [array, Array(dtype, b)], [Array(dtype, b)]))
        return [*made, _eigh(folder, dtype, by_column, 5, [2, 9])]
    tall, short = [*batch, n, 3], [*batch, 3]
    made += [
        _call(f"{folder}.qr", type_ | _matrices(by_column, a=tall, qr=tall),
              [Array(dtype, tall)], [Array(dtype, tall), Array(dtype, short)]),
        _call(f"{folder}.householder_product",
              type_ | {"tau_dims": short} | _matrices(by_column, a=tall, q=tall),
              [Array(dtype, tall), Array(dtype, short)], [Array(dtype, tall)]),
        _eigh(folder, dtype, by_column, n, batch),
    ]  # fmt: skip
    for mode in "AS":
        u, vt = [*batch, n, n if mode == "A" else 3], [*batch, 3, 3]
        svd = type_ | {"mode": ord(mode)} | _matrices(by_column, a=tall, destroyed=tall, u=u, vt=vt)
        results = [Array(dtype, tall), Array(_REAL[dtype], short), Array(dtype, u), Array(dtype, vt), info]
        made.append(_call(f"{folder}.svd", svd, [Array(dtype, tall)], results))
    if folder == "onemkl":
        product = type_ | _matrices(by_column, a=a, b=b, product=b)
        made.append(_call("onemkl.product", product, [array, Array(dtype, b)], [Array(dtype, b)]))
    return made


def _eigh(folder: str, dtype: str, by_column: bool, n: int, batch: Sequence[int]) -> WireCall:
    array = Array(dtype, [*batch, n, n])
    attributes = {"type": dtype, "uplo": ord("L"), "mode": ord("V")}
    attributes |= _matrices(by_column, a=array.dims, v=array.dims)
    values, info = Array(_REAL[dtype], [*batch, n]), Array("s32", list(batch))
    return _call(f"{folder}.eigh", attributes, [array], [array, values, info])


def _transforms() -> list[WireCall]:
    made = []
    for kind, rank, source, result in (
        (0, 1, [4, 6], [4, 6]), (1, 2, [3, 4, 6], [3, 4, 6]), (2, 1, [4, 6], [4, 4]),
        (2, 3, [2, 4, 3, 6], [2, 4, 3, 4]), (3, 1, [4, 4], [4, 6]), (3, 2, [2, 5, 4], [2, 5, 6]),
    ):  # fmt: skip
        attributes = {"type": "f32" if kind == 2 else "c64", "fft_type": kind, "rank": rank}
        attributes |= _matrices(False, src=source, dst=result)
        types = ("f32" if kind == 2 else "c64", "f32" if kind == 3 else "c64")
        made.append(_call("onemkl.fft", attributes, [Array(types[0], source)], [Array(types[1], result)]))
    return made


# --- oneDNN -----------------------------------------------------------------------------------------------------


def tensors(**tensors: tuple[str, Sequence[int]]) -> dict[str, Any]:
    """The attributes of dense row-major tensors: role → (type, dimensions)."""
    described: dict[str, Any] = {}
    for role, (dtype, dims) in tensors.items():
        described |= {f"{role}_type": dtype, f"{role}_dims": list(dims), f"{role}_strides": strides(dims)}
    return described


def onednn(name: str, attributes: dict[str, Any], operands: list[Array], result: Array) -> WireCall:
    """A call of a oneDNN family with the scratch memory that the library asks for."""
    scratch = _scratch_bytes(f"onednn.{name}", attributes)
    return _call(f"onednn.{name}", {"scratch": scratch} | attributes, operands, [result, Array("u8", [scratch])])


def own(name: str, attributes: dict[str, Any], operands: list[Array], *results: Array) -> WireCall:
    """A call of a kernel of our own, which needs no scratch memory."""
    return _call(f"own.{name}", {"scratch": 0} | attributes, operands, [*results, Array("u8", [0])])


def _scratch_bytes(name: str, attributes: dict[str, Any]) -> int:
    """What the library asks for here: it goes by the processor's instructions and the number of threads."""
    libraries.onednn()
    question = {"abi": registry.abi(), "library": "", "scratch": 0} | attributes
    try:
        _, scratch_bytes, *_ = _kernels.plan(registry.kernels()[name].target, question)
    except NotImplementedError:
        return 0
    return scratch_bytes


def _post_ops(dims: Sequence[int], dtype: str = "f32") -> dict[str, Any]:
    binary = {"kind": "binary", "algorithm": "add", "type": dtype, "dims": list(dims), "strides": strides(dims)}
    return {"post_op_0": {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}, "post_op_1": binary}


def _window(spatial: int, stride: int = 1, low: int = 1, high: int = 1) -> dict[str, Any]:
    window = {"strides": stride, "dilations": 0, "padding_low": low, "padding_high": high}
    return {name: [value] * spatial for name, value in window.items()}


def _products() -> list[WireCall]:
    made = []
    for dtype, batch, bias in (("f32", [], True), ("bf16", [], False), ("f32", [2], False)):
        src, weights, dst = [*batch, 5, 16], [*batch, 16, 8], [*batch, 5, 8]
        attributes = tensors(src=(dtype, src), weights=(dtype, weights), dst=(dtype, dst)) | _post_ops(dst, dtype)
        operands = [Array(dtype, src), Array(dtype, weights)]
        if bias:
            attributes["bias_type"] = dtype
            operands.append(Array(dtype, [8]))
        made.append(onednn("matmul", attributes, [*operands, Array(dtype, dst)], Array(dtype, dst)))
    part = tensors(src=("f32", [5, 16]), weights=("f32", [16, 8]), dst=("f32", [5, 8]))
    part |= {"src_offset": 3, "src_elements": 90, "weights_format": "plain"}
    made.append(onednn("matmul", part, [Array("f32", [90]), Array("f32", [16, 8])], Array("f32", [5, 8])))
    return made


def _convolutions() -> list[WireCall]:
    made = []
    for spatial, groups, dtype in ((2, 1, "f32"), (1, 1, "f32"), (2, 16, "bf16"), (3, 1, "f32")):
        space = [6] * spatial
        weights = [groups, 16 // groups, 16 // groups, *[3] * spatial] if groups > 1 else [16, 16, *[3] * spatial]
        data = [2, 16, *space]
        attributes = tensors(src=(dtype, data), weights=(dtype, weights), dst=(dtype, data))
        operands = [Array(dtype, data), Array(dtype, weights)]
        window = _window(spatial)
        made.append(
            onednn("convolution", attributes | window | {"bias_type": dtype} | _post_ops(data, dtype),
                    [*operands, Array(dtype, [16]), Array(dtype, data)], Array(dtype, data))
        )  # fmt: skip
        for reversed_ in (0, 1):
            made.append(onednn("deconvolution", attributes | window | {"weights_reversed": reversed_}, operands,
                                Array(dtype, data)))  # fmt: skip
        gradient = tensors(src=(dtype, data), diff_dst=(dtype, data), diff_weights=(dtype, weights))
        made.append(onednn("weights_gradient", gradient | window | {"weights_reversed": 1},
                            [Array(dtype, data), Array(dtype, data)], Array(dtype, weights)))  # fmt: skip
    return made


def _poolings() -> list[WireCall]:
    made = []
    for spatial, algorithm in ((1, "max"), (2, "average"), (2, "max"), (3, "max")):
        source, result = [2, 16, *[8] * spatial], [2, 16, *[4] * spatial]
        attributes = tensors(src=("f32", source), dst=("f32", result)) | _window(spatial, stride=2, high=0)
        attributes |= {"window": [3] * spatial, "algorithm": algorithm} | _post_ops(result)
        for described in (attributes, attributes["post_op_1"]):
            for name in [name for name in described if name.endswith("dims")]:
                described[name.removesuffix("dims") + "strides"] = channels_last(described[name])
        operands = [Array("f32", source), Array("f32", result)]
        made.append(onednn("pooling", attributes, operands, Array("f32", result)))
    return made


@lru_cache(maxsize=1)
def valid_calls() -> list[WireCall]:
    """At least one call of every target, but for oneMKL's where that is missing; all run where the library has their
    element type. Not to be changed."""
    made = [*_products(), *_convolutions(), *_poolings(), *_transforms()]
    for file in sorted(Path(__file__).parent.glob("family_*.py")):
        made += importlib.import_module(file.stem).valid_calls()
    for folder, dtype, by_column, n, batch in (
        ("onemkl", "f32", True, 5, []), ("onemkl", "c128", False, 4, [2]), ("onemkl", "f64", False, 40, []),
        ("scipy", "f64", True, 5, [3]), ("scipy", "c64", False, 6, []), ("scipy", "f32", False, 4, [2, 2]),
        ("blocked", "f32", True, 5, [2, 3]), ("blocked", "f64", False, 17, []), ("blocked", "f32", False, 24, [18]),
    ):  # fmt: skip
        made += _square(folder, dtype, by_column, n, batch)
    known = registry.kernels()
    return [call for call in made if not (lacks_onemkl() and known[call.name].library == "oneMKL")]
