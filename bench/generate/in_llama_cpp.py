"""llama.cpp: the decoder as a GGUF file, and a session that calls the library (`pip install llama-cpp-python gguf`)."""

# pyright: basic, reportMissingImports=false
# The packages have no complete type hints, and are not there everywhere.
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hlo_dispatch.bench.generate.session import PROMPT, TOKENS, longest_prompt
from hlo_dispatch.bench.generate.weights import (
    EPSILON,
    ROTATION_BASE,
    SIZES,
    Array,
    DecoderSize,
    random_prompt,
    random_weights,
)

TYPES = {"f32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
_NAMES = {
    "query": "attn_q", "key": "attn_k", "value": "attn_v", "out": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
    "down": "ffn_down",
}  # fmt: skip
_TOKENS_AT_ONCE = 2048
_LONGEST = 1 << 16
_SPARE = 16
"""Places of a cache behind its position."""


def write(size: DecoderSize, precision: str, folder: Path) -> Path:
    """The decoder as a file: all matrices in one type, norms in f32."""
    import gguf

    path = folder / f"{precision}.gguf"
    kind = gguf.GGMLQuantizationType[TYPES[precision]]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(_LONGEST)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.hidden)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(size.head_size)
    writer.add_rope_freq_base(ROTATION_BASE)
    writer.add_vocab_size(size.vocabulary)
    writer.add_tokenizer_model("none")
    for name, array in _tensors(size):
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(size: DecoderSize) -> Iterator[tuple[str, Array]]:
    ones = np.ones(size.width, np.float32)
    for layer, name, array in random_weights(size):
        if name == "embedding":
            yield "token_embd.weight", array
            continue
        turned = np.ascontiguousarray(array.T)
        if layer is None:
            yield "output.weight", turned
            continue
        if name in ("query", "key"):
            turned = _paired(turned, size.head_size)
        yield f"blk.{layer}.{_NAMES[name]}.weight", turned
    for layer in range(size.layers):
        yield f"blk.{layer}.attn_norm.weight", ones
        yield f"blk.{layer}.ffn_norm.weight", ones
    yield "output_norm.weight", ones


def _paired(matrix: Array, head_size: int) -> Array:
    """Rows in the order of Llama's rotation there: the two of a pair are neighbours, not half a head apart."""
    halves = matrix.reshape(-1, 2, head_size // 2, matrix.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(matrix.shape)


def make(**settings: Any) -> LlamaCppSession:
    """A session; nothing is loaded."""
    return LlamaCppSession(**settings)


class LlamaCppSession:
    """A model of llama.cpp's, with a context for prompts and one for each position."""

    def __init__(self, size: str, precision: str, file: str, batch: int, requests: list[dict[str, Any]]) -> None:
        import llama_cpp

        self._library, self._file, self._batch, self._precision = llama_cpp, file, batch, precision
        self._prompt = random_prompt(SIZES[size], batch, longest_prompt(requests))
        self._longest = max(PROMPT + TOKENS, *(request.get("prefill", 0) for request in requests))
        self._at: dict[int, _Context] = {}

    def load(self) -> None:
        library = self._library
        library.llama_backend_init()
        settings = library.llama_model_default_params()
        settings.n_gpu_layers = 0
        self._model = library.llama_model_load_from_file(self._file.encode(), settings)
        if not self._model:
            raise ValueError(f"llama.cpp does not load {self._file}")
        self._whole = self._context(self._longest)

    def forget_weights(self) -> None:
        pass

    @property
    def weight_bytes(self) -> int:
        return self._library.llama_model_size(self._model)

    def _context(self, length: int) -> _Context:
        return _Context(self._library, self._model, self._batch, length + _SPARE, self._precision == "f32")

    @property
    def cache_bytes(self) -> int:
        return 0

    def prefill(self, count: int) -> Array:
        return self._whole.evaluated(self._prompt[:, :count], 0)

    def decode(self, position: int, tokens: Array) -> Array:
        return self._whole.evaluated(tokens[:, None], position)

    def call(self, request: dict[str, Any]) -> Callable[[], object]:
        if "prefill" in request:
            return lambda: self.prefill(request["prefill"])
        position = request["position"]
        if position not in self._at:
            self._at[position] = self._context(position)
            self._at[position].evaluated(self._prompt[:, :position], 0)
        return lambda: self._at[position].evaluated(self._prompt[:, position : position + 1], position)

    def keep(self, request: dict[str, Any]) -> None:
        for position, context in [(None, self._whole), *self._at.items()]:
            if position != request["position"]:
                context.close()
        self._at = {request["position"]: self._at[request["position"]]}


class _Context:
    """A cache of llama.cpp's for a batch of sequences."""

    def __init__(self, library: Any, model: Any, batch: int, length: int, is_exact: bool) -> None:
        self._library, self._sequences = library, batch
        self._vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        settings = library.llama_context_default_params()
        # Of each sequence a multiple of this is kept.
        settings.n_ctx = -(-length // 256) * 256 * batch
        settings.n_seq_max = batch
        settings.n_batch = _TOKENS_AT_ONCE
        settings.n_threads = settings.n_threads_batch = len(os.sched_getaffinity(0))
        if is_exact:
            settings.type_k = settings.type_v = library.GGML_TYPE_F32
        self._context = library.llama_init_from_model(model, settings)
        if not self._context:
            raise ValueError(f"llama.cpp makes no context of {batch} times {length} tokens")
        self._tokens = library.llama_batch_init(_TOKENS_AT_ONCE, 0, 1)

    def evaluated(self, tokens: Array, position: int) -> Array:
        """The likeliest next token of each sequence, behind tokens [batch, t] at a position; what was there goes."""
        memory = self._library.llama_get_memory(self._context)
        for sequence in range(self._sequences):
            self._library.llama_memory_seq_rm(memory, sequence, position, -1)
        at_once = _TOKENS_AT_ONCE // self._sequences
        last: list[int] = []
        for begin in range(0, tokens.shape[1], at_once):
            last = self._put(tokens[:, begin : begin + at_once], position + begin)
            status = self._library.llama_decode(self._context, self._tokens)
            if status:
                raise ValueError(f"llama_decode gives {status}")
        logits = (self._library.llama_get_logits_ith(self._context, number) for number in last)
        return np.array([np.ctypeslib.as_array(row, (self._vocabulary,)).argmax() for row in logits], np.int32)

    def _put(self, tokens: Array, position: int) -> list[int]:
        """Tokens into the batch; the numbers of those whose logits are asked for, the last of each sequence."""
        batch, number, last = self._tokens, 0, []
        for sequence, row in enumerate(tokens.tolist()):
            for offset, token in enumerate(row):
                batch.token[number], batch.pos[number] = token, position + offset
                batch.n_seq_id[number], batch.seq_id[number][0] = 1, sequence
                batch.logits[number] = offset == len(row) - 1
                number += 1
            last.append(number - 1)
        batch.n_tokens = number
        return last

    def close(self) -> None:
        self._library.llama_batch_free(self._tokens)
        self._library.llama_free(self._context)
