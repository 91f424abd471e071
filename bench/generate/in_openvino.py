"""OpenVINO: the decoder as a stateful model, int8 and int4 by NNCF (`pip install openvino nncf`), and its session."""

# pyright: basic, reportMissingImports=false
# The packages have no complete type hints, and are not there everywhere.
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hlo_dispatch.bench.generate.session import longest_prompt
from hlo_dispatch.bench.generate.weights import (
    EPSILON,
    ROTATION_BASE,
    SIZES,
    Array,
    DecoderSize,
    random_prompt,
    random_weights,
)

GROUP = 64
"""Weights of four bits with one scale."""
_MASKED = -65504.0


def write(size: DecoderSize, precision: str, folder: Path) -> Path:
    """The decoder as a file: f32, f16 (for bf16, which is a way of computing there), or integers of NNCF's."""
    import openvino

    model = _Builder(size).model()
    if precision in ("int8", "int4"):
        import nncf

        if precision == "int8":
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        else:
            four = nncf.CompressWeightsMode.INT4_SYM
            model = nncf.compress_weights(model, mode=four, group_size=GROUP, ratio=1.0, all_layers=True)
    path = folder / f"{precision}.xml"
    openvino.save_model(model, str(path), compress_to_fp16=precision != "f32")
    return path


class _Builder:
    """The decoder in OpenVINO's operations, spelled so that its own fusions find them."""

    def __init__(self, size: DecoderSize) -> None:
        from openvino import opset13

        self._ops, self._size = opset13, size
        self._layers: list[dict[str, Array]] = [{} for _ in range(size.layers)]
        self._others: dict[str, Array] = {}
        for layer, name, array in random_weights(size):
            (self._others if layer is None else self._layers[layer])[name] = array
        self._assignments: list[Any] = []

    def model(self) -> Any:
        """(tokens [batch, t], position of the first, batch's order) → logits [batch, 1, vocabulary] of the last."""
        import openvino

        ops = self._ops
        tokens = self._input("tokens", [-1, -1], np.int64)
        position = self._input("position", [], np.int64)
        self._order = self._input("beam_idx", [-1], np.int32)
        shape = ops.shape_of(tokens)
        count = ops.gather(shape, self._integers(1), self._integers(0))
        self._batch = ops.gather(shape, self._integers([0]), self._integers(0))
        behind = ops.add(position, count)
        at = ops.range(position, behind, self._integers(1), "i64")
        self._rotation = self._cosine_and_sine(ops.convert(at, "f32"))
        keys = ops.range(self._integers(0), behind, self._integers(1), "i64")
        is_seen = ops.less_equal(self._unsqueezed(keys, 0, 1, 2), self._unsqueezed(at, 0, 1, 3))
        self._mask = ops.select(is_seen, self._floats(0.0), self._floats(_MASKED))
        x = ops.gather(self._floats(self._others["embedding"]), tokens, self._integers(0))
        for number, layer in enumerate(self._layers):
            x = self._layer(number, layer, x)
        x = ops.slice(x, self._integers([-1]), self._integers([2**62]), self._integers([1]), self._integers([1]))
        logits = ops.result(self._product(self._normalized(x), self._others["head"]))
        return openvino.Model([logits], self._assignments, [tokens, position, self._order], "decoder")

    def _input(self, name: str, shape: list[int], dtype: Any) -> Any:
        parameter = self._ops.parameter(shape, dtype, name=name)
        parameter.output(0).set_names({name})
        return parameter

    def _integers(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, np.int64))

    def _floats(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, np.float32))

    def _unsqueezed(self, x: Any, *axes: int) -> Any:
        return self._ops.unsqueeze(x, self._integers(axes))

    def _product(self, x: Any, weights: Array) -> Any:
        return self._ops.matmul(x, self._floats(np.ascontiguousarray(weights.T)), False, True)

    def _normalized(self, x: Any) -> Any:
        ops = self._ops
        mean = ops.reduce_mean(ops.power(x, self._floats(2.0)), self._integers([-1]), True)
        root = ops.sqrt(ops.add(mean, self._floats(EPSILON)))
        scaled = ops.multiply(x, ops.divide(self._floats(1.0), root))
        return ops.multiply(scaled, self._floats(np.ones((1, 1, self._size.width))))

    def _cosine_and_sine(self, at: Any) -> tuple[Any, Any]:
        """[1, 1, t, head size]."""
        head_size = self._size.head_size
        frequencies = 1.0 / (ROTATION_BASE ** (np.arange(0, head_size, 2, dtype=np.float32) / head_size))
        angles = self._ops.multiply(self._unsqueezed(at, 0, 1, 3), self._floats(frequencies[None, None, None]))
        angles = self._ops.concat([angles, angles], -1)
        return self._ops.cos(angles), self._ops.sin(angles)

    def _rotated(self, x: Any) -> Any:
        ops, half = self._ops, self._size.head_size // 2

        def part(begin: int, end: int) -> Any:
            return ops.slice(x, *(self._integers([number]) for number in (begin, end, 1, 3)))

        turned = ops.concat([ops.multiply(part(half, 2**62), self._floats(-1.0)), part(0, half)], -1)
        cosine, sine = self._rotation
        return ops.add(ops.multiply(x, cosine), ops.multiply(turned, sine))

    def _heads(self, x: Any, heads: int) -> Any:
        """[batch, heads, t, head size]."""
        split = self._ops.reshape(x, self._integers([0, 0, heads, self._size.head_size]), True)
        return self._ops.transpose(split, self._integers([0, 2, 1, 3]))

    def _cached(self, name: str, new: Any) -> Any:
        """All keys or values, the new ones behind those of a variable."""
        import openvino
        from openvino.op.util import Variable, VariableInfo

        ops, size = self._ops, self._size
        information = VariableInfo()
        information.variable_id, information.data_type = name, openvino.Type.f32
        information.data_shape = openvino.PartialShape([-1, size.kv_heads, -1, size.head_size])
        variable = Variable(information)
        rest = self._integers([size.kv_heads, 0, size.head_size])
        nothing = ops.broadcast(self._floats(0.0), ops.concat([self._batch, rest], 0))
        before = ops.gather(ops.read_value(nothing, variable), self._order, self._integers(0))
        every = ops.concat([before, new], 2)
        self._assignments.append(ops.assign(every, variable))
        return every

    def _repeated(self, x: Any) -> Any:
        """Each head of keys or values for all of its queries' heads."""
        ops, size = self._ops, self._size
        repeats = self._integers([1, 1, size.heads // size.kv_heads, 1, 1])
        repeated = ops.broadcast(self._unsqueezed(x, 2), repeats, broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(repeated, self._integers([0, size.heads, -1, size.head_size]), True)

    def _layer(self, number: int, layer: dict[str, Array], x: Any) -> Any:
        ops, size = self._ops, self._size
        h = self._normalized(x)
        query = self._rotated(self._heads(self._product(h, layer["query"]), size.heads))
        key = self._rotated(self._heads(self._product(h, layer["key"]), size.kv_heads))
        value = self._heads(self._product(h, layer["value"]), size.kv_heads)
        keys, values = self._cached(f"keys.{number}", key), self._cached(f"values.{number}", value)
        mixed = ops.scaled_dot_product_attention(query, self._repeated(keys), self._repeated(values), self._mask)
        mixed = ops.transpose(mixed, self._integers([0, 2, 1, 3]))
        mixed = ops.reshape(mixed, self._integers([0, 0, size.width]), True)
        x = ops.add(x, self._product(mixed, layer["out"]))
        h = self._normalized(x)
        gated = ops.multiply(ops.swish(self._product(h, layer["gate"])), self._product(h, layer["up"]))
        return ops.add(x, self._product(gated, layer["down"]))


def make(**settings: Any) -> OpenVinoSession:
    """A session; nothing is loaded."""
    return OpenVinoSession(**settings)


class OpenVinoSession:
    """A compiled model, with a request, and so a state, for prompts and one for each position.

    A state cannot be cut: each token that is measured makes it longer by one.
    """

    def __init__(self, size: str, precision: str, file: str, batch: int, requests: list[dict[str, Any]]) -> None:
        self._file = file
        self._settings: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32" if precision == "f32" else "bf16",
            "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
        }
        if precision == "f32":
            self._settings["KV_CACHE_PRECISION"] = "f32"
        self._order = np.arange(batch, dtype=np.int32)
        self._prompt = random_prompt(SIZES[size], batch, longest_prompt(requests)).astype(np.int64)
        self._at: dict[int, tuple[Any, int]] = {}

    def load(self) -> None:
        import openvino

        self._compiled = openvino.Core().compile_model(self._file, "CPU", self._settings)
        self._whole = self._compiled.create_infer_request()

    def forget_weights(self) -> None:
        pass

    @property
    def weight_bytes(self) -> int:
        return Path(self._file).with_suffix(".bin").stat().st_size

    def _evaluated(self, request: Any, tokens: Array, position: int) -> Array:
        values = {"tokens": tokens, "position": np.int64(position), "beam_idx": self._order}
        logits = request.infer(values, share_inputs=True, share_outputs=True)[0]
        return logits[:, -1].argmax(-1).astype(np.int64)

    @property
    def cache_bytes(self) -> int:
        return 0

    def prefill(self, count: int) -> Array:
        self._whole.reset_state()
        return self._evaluated(self._whole, self._prompt[:, :count], 0)

    def decode(self, position: int, tokens: Array) -> Array:
        return self._evaluated(self._whole, tokens[:, None], position)

    def call(self, request: dict[str, Any]) -> Callable[[], object]:
        if "prefill" in request:
            return lambda: self.prefill(request["prefill"])
        position = request["position"]
        if position not in self._at:
            made = self._compiled.create_infer_request()
            self._evaluated(made, self._prompt[:, :position], 0)
            self._at[position] = made, position
        return lambda: self._one_more(position)

    def _one_more(self, position: int) -> Array:
        request, length = self._at[position]
        self._at[position] = request, length + 1
        return self._evaluated(request, self._prompt[:, position : position + 1], length)

    def keep(self, request: dict[str, Any]) -> None:
        del self._whole
        self._at = {request["position"]: self._at[request["position"]]}
