"""Sample calls of medium size for kernel support queries: `hlo-dispatch doctor` shows what each library would run.

No kernel is named here: each takes the first call with the attributes and shapes that it needs and that it supports.
A kernel that takes none of them gets no query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import registry
from hlo_dispatch.vendor.kernels import Planned, plan

_ROLES = ("src", "weights", "dst", "diff_weights", "diff_dst")


@dataclass(frozen=True)
class Sample:
    """A sample call, in several element types."""

    dtypes: tuple[str, ...]
    attributes: Callable[[str], dict[str, Any]]
    """Element type → the attributes, without those that every call has."""


def answers(name: str, version: str) -> dict[str, Planned | Refusal]:
    """The library's answers to the kernel's sample call, by element type; empty where there is no call."""
    refused: dict[str, Planned | Refusal] = {}
    for sample in SAMPLES:
        try:
            found = {dtype: plan(name, call(sample, dtype, version)) for dtype in sample.dtypes}
        except ValueError:
            continue  # the attributes or shapes of another kernel
        if not all(isinstance(answer, Refusal) for answer in found.values()):
            return found
        refused = refused or found  # a later sample may fit better
    return refused


def call(sample: Sample, dtype: str, version: str) -> dict[str, Any]:
    """All attributes of the call."""
    common = {"abi": registry.abi(), "library": version, "scratch": 0}
    # The members of a call group are calls themselves.
    described = {
        name: common | value if name.startswith("member_") else value
        for name, value in sample.attributes(dtype).items()
    }
    return common | described


def _products(dtype: str, size: int = 256) -> dict[str, Any]:
    square = {"type": dtype, "dims": [size, size], "strides": [size, 1]}
    described = {f"{role}_{key}": value for role in _ROLES for key, value in square.items()}
    return described | {"algorithm": "softmax", "statistics": "variance", "epsilon": 1e-6}


def _quantized_matmuls(dtype: str) -> dict[str, Any]:
    """GEMV with weights of eight bits."""
    row = {"dims": [1, 256], "strides": [256, 1]}
    described = {f"{role}_{key}": value for role in ("src", "dst") for key, value in (row | {"type": dtype}).items()}
    return described | {"weights_type": "s8", "weights_dims": [256, 256], "weights_strides": [256, 1]}


def _images(dtype: str) -> dict[str, Any]:
    image = {"type": dtype, "dims": [1, 64, 56, 56], "strides": [200704, 1, 3584, 64]}
    filters = {"type": dtype, "dims": [64, 64, 3, 3], "strides": [1, 64, 12288, 4096]}
    tensors = {role: filters if role.endswith("weights") else image for role in _ROLES}
    window = {"strides": 1, "dilations": 0, "padding_low": 1, "padding_high": 1, "window": 3}
    described = {f"{role}_{key}": value for role, tensor in tensors.items() for key, value in tensor.items()}
    return described | {name: [value, value] for name, value in window.items()} | {"algorithm": "max"}


def _heads(dtype: str) -> dict[str, Any]:
    heads = {"type": dtype, "dims": [12, 128, 64], "strides": [8192, 64, 1]}
    roles = ("query", "key", "value", "dst")
    return {f"{role}_{key}": value for role in roles for key, value in heads.items()}


def _gates(dtype: str) -> dict[str, Any]:
    """An image, and a gate: a factor for each channel."""
    image = {"type": dtype, "dims": [1, 64, 56, 56], "strides": [200704, 1, 3584, 64]}
    gate = {"kind": "binary", "algorithm": "mul", "type": dtype, "dims": [1, 64, 1, 1], "strides": [64, 1, 64, 64]}
    return {f"{role}_{key}": value for role in ("src", "dst") for key, value in image.items()} | {"post_op_0": gate}


def _means(dtype: str) -> dict[str, Any]:
    """A mean over space: a window as large as the image."""
    image = {"type": dtype, "dims": [1, 64, 56, 56], "strides": [200704, 1, 3584, 64]}
    mean = {"type": dtype, "dims": [1, 64, 1, 1], "strides": [64, 1, 64, 64]}
    window = {"strides": [1, 1], "dilations": [0, 0], "padding_low": [0, 0], "padding_high": [0, 0], "window": [56, 56]}
    tensors = {"src": image, "dst": mean}
    described = {f"{role}_{key}": value for role, tensor in tensors.items() for key, value in tensor.items()}
    return described | window | {"algorithm": "average"}


def _concatenations(dtype: str) -> dict[str, Any]:
    """Concatenation of two images along their channels."""
    columns = {"src": 64, "src_1": 32, "dst": 96}
    tensors = {role: {"type": dtype, "dims": [3136, c], "strides": [c, 1]} for role, c in columns.items()}
    described = {f"{role}_{key}": value for role, tensor in tensors.items() for key, value in tensor.items()}
    return described | {"sources": len(tensors) - 1}


def _functions(dtype: str) -> dict[str, Any]:
    """The sines of an array."""
    array = {"type": dtype, "dims": [100_000], "strides": [1]}
    described = {f"{role}_{key}": value for role in ("src", "dst") for key, value in array.items()}
    return described | {"sources": 1, "program": f"{dtype} sine 0"}


def _logits(dtype: str) -> dict[str, Any]:
    """A row of numbers for each of several tokens, and a place for each."""
    source = {"src_type": dtype, "src_dims": [8, 32000], "src_strides": [32000, 1]}
    return source | {"dst_type": "s32", "dst_dims": [8], "dst_strides": [1], "extremum": "maximum"}


def _vectors(dtype: str) -> dict[str, Any]:
    """Rows of numbers, and the norm of each."""
    rows = {"src_type": dtype, "src_dims": [100, 10_000], "src_strides": [10_000, 1]}
    return rows | {"dst_type": dtype, "dst_dims": [100], "dst_strides": [1], "of": "squares", "root": 1}


def _groups(dtype: str) -> dict[str, Any]:
    """An image whose channels are normalized in groups."""
    image = {"type": dtype, "dims": [1, 4096, 320], "strides": [1310720, 320, 1]}
    described = {f"{role}_{key}": value for role in ("src", "dst") for key, value in image.items()}
    return described | {"scale_type": "f32", "shift_type": "f32", "groups": 32, "epsilon": 1e-6, "swish": 0}


def _points(dtype: str) -> dict[str, Any]:
    """Two sets of points, and a distance for each two."""
    sizes = {"src": [1000, 64], "other": [1000, 64], "dst": [1000, 1000]}
    tensors = {role: {"type": dtype, **_rows(dims)} for role, dims in sizes.items()}
    return {f"{role}_{key}": value for role, tensor in tensors.items() for key, value in tensor.items()}


def _sorts(dtype: str) -> dict[str, Any]:
    """Rows of keys, and their places."""
    roles = ("keys", "places", "sorted_keys", "sorted_places")
    return {"type": dtype} | {f"{role}_{key}": value for role in roles for key, value in _rows([8, 32000]).items()}


def _largest(dtype: str) -> dict[str, Any]:
    """The fifty largest of rows of logits."""
    found = {f"{role}_{key}": value for role in ("largest", "places") for key, value in _rows([8, 50]).items()}
    return {"type": dtype} | {f"values_{key}": value for key, value in _rows([8, 32000]).items()} | found


def _lines(dtype: str) -> dict[str, Any]:
    """Lines of numbers behind one another."""
    lines = {"dims": [8, 4096, 1], "strides": [4096, 1, 1]}
    return {"type": dtype} | {f"{role}_{key}": value for role in ("src", "dst") for key, value in lines.items()}


def _entries(dtype: str) -> dict[str, Any]:
    """A sparse matrix of 4096 entries times a dense one."""
    vector = {f"{role}_{key}": [4096 if key == "dims" else 1] for role in ("values", "rows", "columns")
              for key in ("dims", "strides")}  # fmt: skip
    whole = {f"{role}_offset": 0 for role in ("rows", "columns")} | {"rows_elements": 4096, "columns_elements": 4096}
    dense = {f"{role}_{key}": value for role in ("src", "dst") for key, value in _rows([1024, 64]).items()}
    return {"type": dtype} | vector | whole | dense


def _bags(dtype: str) -> dict[str, Any]:
    """Means of 64 rows of a table."""
    described = {f"indices_{key}": value for key, value in _rows([100, 64]).items()}
    described |= {f"{role}_{key}": value for role, dims in (("src", [1000, 256]), ("dst", [100, 256]))
                  for key, value in _rows(dims).items()}  # fmt: skip
    options = {"indices_offset": 0, "indices_elements": 6400, "wrap": 1, "mean": 1, "outside": 0}
    return {"type": dtype, "dst_type": dtype} | described | options


def _counts(dtype: str) -> dict[str, Any]:
    """A histogram of an array's indices."""
    vector = {"indices_dims": [100_000], "indices_strides": [1], "indices_offset": 0, "indices_elements": 100_000}
    return {"type": dtype, "dst_dims": [100], "dst_strides": [1], "below": 1} | vector


def _searches(dtype: str) -> dict[str, Any]:
    """The places of numbers in a sorted array."""
    sizes = {"sorted": 1000, "src": 100_000, "dst": 100_000}
    described = {f"{role}_dims": [size] for role, size in sizes.items()} | {f"{role}_strides": [1] for role in sizes}
    return {"type": dtype, "right": 0, "wide": 0, "steps": 10} | described


def _words(dtype: str) -> dict[str, Any]:
    """Pairs of words that are hashed with three keys."""
    words = {"dims": [100_000], "strides": [1]}
    described = {f"{role}_{key}": value for role in ("first", "second", "hashed_first", "hashed_second")
                 for key, value in words.items()}  # fmt: skip
    keys = {f"key_{number}_{key}": [1] for number in range(3) for key in ("dims", "strides")}
    return {"type": dtype} | described | keys


def _rows(dims: list[int]) -> dict[str, list[int]]:
    return {"dims": dims, "strides": [dims[1], 1]}


def _sequences(dtype: str) -> dict[str, Any]:
    """An LSTM over a sequence."""
    state = {"type": dtype, "dims": [8, 256], "strides": [256, 1]}
    tensors = {
        "src": {"type": dtype, "dims": [16, 8, 1024], "strides": [8192, 1024, 1]},
        "weights": {"type": dtype, "dims": [256, 1024], "strides": [1024, 1]},
        "state": state,
        "cell_state": state,
        "dst": {"type": dtype, "dims": [16, 8, 256], "strides": [2048, 256, 1]},
    }
    described = {f"{role}_{key}": value for role, tensor in tensors.items() for key, value in tensor.items()}
    blocks = list(range(4))
    return described | {"cell": "lstm", "reversed": 0, "hidden_blocks": blocks, "input_blocks": blocks}


def _prepacked_products(target: str, size: int = 256) -> Callable[[str], dict[str, Any]]:
    return lambda dtype: _products(dtype, size) | {"weights_format": "packed", "target": target}


def _prepacked_integers(dtype: str) -> dict[str, Any]:
    return _quantized_matmuls(dtype) | {"weights_format": "packed", "target": "own.narrow_product"}


def _call_groups(dtype: str) -> dict[str, Any]:
    """A call group of two matrix products."""
    kernel, product = "onednn.matmul", _products(dtype)
    planned = plan(kernel, {"abi": registry.abi(), "library": "", "scratch": 0} | product)
    scratch = 0 if isinstance(planned, Refusal) else planned.scratch_bytes
    product |= {"target": registry.kernels()[kernel].target, "scratch": scratch}
    members = {
        f"member_{number}": product | {"inputs": inputs, "output": output}
        for number, (inputs, output) in enumerate((([0, 1], 3), ([3, 1], 2)))
    }
    return {"operands": 2, "results": 1, "offsets": [0], "members": len(members)} | members


def _matrices(mode: str) -> Callable[[str], dict[str, Any]]:
    """A LAPACK routine or transform of square matrices, which also serve as the vectors."""

    def attributes(dtype: str) -> dict[str, Any]:
        roles = "a b x product factor lu qr q v destroyed u vt src dst".split()
        square = {f"{role}_dims": [8, 8] for role in roles} | {f"{role}_strides": [8, 1] for role in roles}
        letters = {"side": "L", "uplo": "L", "trans_x": "N", "diag": "N", "mode": mode}
        is_real = dtype in ("f32", "f64")
        # Only the transform of a complex array keeps its size; a real one halves the last dimension.
        if is_real:
            square |= {"dst_dims": [8, 5], "dst_strides": [5, 1]}
        kind = {"type": dtype, "tau_dims": [8], "fft_type": 2 if is_real else 0, "rank": 2}
        return square | {option: ord(letter) for option, letter in letters.items()} | kind

    return attributes


def _tiny_matrices(dtype: str) -> dict[str, Any]:
    """A batch of symmetric matrices."""
    batch = {"dims": [32, 5, 5], "strides": [25, 5, 1]}
    described = {f"{role}_{key}": value for role in ("a", "v") for key, value in batch.items()}
    return described | {"type": dtype, "mode": ord("V"), "uplo": ord("L")}


_LOW, _HIGH = ("f32", "bf16", "f16"), ("f32", "f64", "c64", "c128")
PRODUCTS, IMAGES = Sample(_LOW, _products), Sample(_LOW, _images)
SAMPLES = (
    PRODUCTS,
    IMAGES,
    Sample(_LOW, _means),
    Sample(_LOW, _heads),
    Sample(_LOW, _gates),
    Sample(_LOW, _concatenations),
    Sample(_LOW[:2], _sequences),
    Sample(_LOW[:2], _logits),
    Sample(_LOW[:2], _groups),
    Sample(("f32", "f64", "bf16"), _vectors),
    Sample(("f32", "f64"), _points),
    Sample(("f32", "f64"), _functions),
    Sample(_LOW[:1], _sorts),
    Sample(_LOW[:1], _largest),
    Sample(("f32", "f64"), _lines),
    Sample(("f32", "f64"), _entries),
    Sample(("f32", "f64"), _counts),
    Sample(("f32", "f64", "bf16"), _bags),
    Sample(("f32", "f64"), _searches),
    Sample(("u32",), _words),
    Sample(_LOW, _prepacked_products("onednn.matmul")),
    Sample(_LOW, _call_groups),
    Sample(_LOW, _prepacked_products("onemkl.gemm", size=2048)),
    Sample(_LOW, _quantized_matmuls),
    Sample(_LOW, _prepacked_integers),
    Sample(("f64",), _images),
    Sample(("s8", "s16", "s32"), _products),
    Sample(("u8",), lambda dtype: {"bytes": [32 << 20]}),
    Sample(_HIGH, _matrices("V")),
    Sample(_HIGH, _matrices("A")),
    Sample(("f32", "f64"), _tiny_matrices),
)
