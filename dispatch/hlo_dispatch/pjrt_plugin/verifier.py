"""Verifier: the process that compares rewritten modules with stock's, on the plugin's runtime.

It reads one JSON object a line (the paths of two modules, and how they are compiled), and answers with one line: empty,
or what differs. Lines before say that stock's module has run.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hlo_dispatch.autotune.compare.validation import difference, is_finite
from hlo_dispatch.autotune.run.inputs import KINDS, dtype_of, random_inputs
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.entry_layouts import refuse_entry_layouts
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.ir.text import parsed
from hlo_dispatch.kernels import plugin_path
from hlo_dispatch.pjrt_plugin.c_client import CClient
from hlo_dispatch.pjrt_plugin.trial import trial
from hlo_dispatch.process.parent import end_with_parent

_SEED = 20
_TOLERANCE, _COARSE = 1e-3, 5e-2
"""Largest difference relative to a result's largest value; the coarse one where the module rounds to 8 or 16 bits.
Each region was validated by its own bound when it was measured: here another runtime compiles what is around it."""
_ROUNDED = ("bf16", "f16", "f8e5m2", "f8e4m3fn", "s8", "u8", "s4", "u4")
STOCK_HAS_RUN = b".\n"
"""Line of progress, by which the rewriter knows that the program ends."""


def verify(
    client: CClient,
    stock: bytes,
    rewritten: bytes,
    options: bytes = b"",
    stock_has_run: Callable[[], object] = int,
    seconds_left: Callable[[], float] | None = None,
) -> str:
    """Why a rewritten module is not to be used; empty: its results are stock's, on every device of the client.

    Args:
        options: a CompileOptionsProto that asks for as many devices; empty: for one.
        stock_has_run: called as stock's module has run on some inputs.
        seconds_left: seconds until the answer's deadline; None: no trial compares the two modules' times.
    """
    module = parsed(stock)
    # The runtime is given no layouts with a module, and takes row-major ones.
    refuse_entry_layouts(module)
    signature = module.entry.program_shape
    parameters = [shape_of(shape) for shape in signature.parameters]
    results = [shape_of(shape) for shape in signature.result.tuple_shapes or (signature.result,)]
    if not all(shape.is_array and not shape.is_dynamic and not shape.packed_bits for shape in (*parameters, *results)):
        return "its operands or results are no plain arrays"
    types = [shape.element_type for shape in parameters]
    tolerance = _TOLERANCE if _element_types(module).isdisjoint(_ROUNDED) else _COARSE
    compared, inputs = False, list[Any]()
    with client.loaded(stock, options) as first, client.loaded(rewritten, options) as second:
        for inputs in _inputs(module, parameters):
            expected = _arrays(client.execute(first, inputs, types, len(results)), results)
            stock_has_run()
            got = _arrays(client.execute(second, inputs, types, len(results)), results)
            # A NaN that reaches a clip inside a call comes out as its bound, and may not be NaN in the end.
            found = difference(expected, list(map(_where_number, expected, got)), tolerance)
            if found:
                number = found.result % len(results)
                return f"result {number} differs from stock's by {found.value:.2g} of its largest value"
            compared = compared or any(map(_has_finite, expected))
            if is_finite(expected):
                break
        if not compared:
            return "its results are not finite on random inputs"
        if seconds_left is None:
            return ""
        return trial(client, (first, second), inputs, types, len(results), seconds_left())


def _inputs(module: Module, shapes: list[Shape]) -> Iterator[list[Any]]:
    """Random inputs, in the order of attempts.

    As weights of a network are, first: plain random ones make a program of many layers overflow, or leave a softmax's
    winner to rounding.
    """
    yield [_as_weights(value) for value in random_inputs(module, shapes, _SEED)]
    for kind in KINDS:
        yield random_inputs(module, shapes, _SEED, kind)


def _as_weights(value: Any) -> Any:
    """Arrays that keep the size of what they multiply; of fewer dimensions (variances, scales), positive ones."""
    if value.dtype.kind in "biu" or value.dtype.itemsize == 1:
        return value
    if value.ndim < 2:
        return (np.abs(value) + 0.5).astype(value.dtype)
    return (value * (4 / np.sqrt(max(math.prod(value.shape[:-1]), 1)))).astype(value.dtype)


def _element_types(module: Module) -> set[str]:
    return {shape_of(i.shape).element_type for i in module.instructions}


def _arrays(values: list[bytes], shapes: list[Shape]) -> list[Any]:
    """Of each device in turn."""
    return [np.frombuffer(value, dtype_of(shape)) for value, shape in zip(values, itertools.cycle(shapes))]


def _where_number(stock: Any, value: Any) -> Any:
    """The values, but NaN where stock's are."""
    if stock.dtype.kind in "biu":
        return value
    copied = value.copy()
    copied[np.isnan(_as_numpys(stock))] = np.nan
    return copied


def _has_finite(value: Any) -> bool:
    return value.dtype.kind in "biu" or bool(np.isfinite(_as_numpys(value)).any())


def _as_numpys(value: Any) -> Any:
    """Floating values in a type that NumPy knows."""
    return value if value.dtype.kind in "fc" else value.astype(np.float32)


def _seconds_until(moment: float) -> float:
    return moment - time.monotonic()


def main() -> None:
    """Answer until the rewriter ends."""
    end_with_parent()
    # A check that fails inside XLA writes to standard output and error; answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    clients: dict[int, CClient] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        stock, rewritten = (Path(asked[name]).read_bytes() for name in ("stock", "rewritten"))
        try:
            devices: int = asked["devices"]
            if devices not in clients:
                # A client of one device has as many threads as the host's: XLA_FLAGS may ask for more devices there.
                clients[devices] = CClient(plugin_path(), devices=devices if devices > 1 else None)
            client = clients[devices]
            for handler in asked["handlers"]:
                client.add_kernel(*handler.split(" ", 2))
            options = bytes.fromhex(asked["options"])
            until: float | None = asked["trial_until"]
            left = None if until is None else partial(_seconds_until, until)
            verdict = verify(client, stock, rewritten, options, partial(answers.write, STOCK_HAS_RUN), left)
        except HloDispatchError as error:
            verdict = " ".join(str(error).split())
        answers.write(verdict.encode() + b"\n")


if __name__ == "__main__":
    main()
