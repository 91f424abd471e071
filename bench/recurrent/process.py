"""Process that times recurrent layers in one library: JAX, PyTorch or OpenVINO (worker.py)."""

# pyright: basic, reportMissingImports=false
# The frameworks have no complete type hints, and are not there everywhere.
from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from hlo_dispatch.bench.recurrent.layers import RecurrentCase, arrays, in_jax, training_step
from hlo_dispatch.bench.worker import serve

LIBRARIES: dict[str, tuple[str, ...]] = {
    "jax": ("stock", "jit", "frozen", "stock training", "jit training"),
    "torch": ("PyTorch", "PyTorch training"),
    "openvino": ("OpenVINO",),
}
"""Library → its ways; the name is its package's, too."""
Call = Callable[[], Any]
Makers = dict[str, Callable[[], Call]]
"""Way → what makes its call: compiling one can take seconds, and not all of them are asked for."""


def jax_ways(case: RecurrentCase, policy: str) -> Makers:
    """Stock, jitted, frozen; a step of training, stock and jitted."""
    import jax

    import hlo_dispatch

    layer, weights, sequence = in_jax(case)
    step = training_step(layer)

    def stock(function: Callable[..., Any]) -> Call:
        return partial(jax.jit(function).lower(weights, sequence).compile(), weights, sequence)

    def jitted(function: Callable[..., Any]) -> Call:
        # A function of its own: JAX gives stock's executable for the same one.
        again = jax.jit(lambda *both: function(*both))
        with hlo_dispatch.enabled(policy=policy):
            return partial(again.lower(weights, sequence).compile(), weights, sequence)

    def frozen(function: Callable[..., Any]) -> Call:
        with hlo_dispatch.enabled(policy=policy):
            found = hlo_dispatch.freeze(function, weights)
            found(sequence)
        return partial(found, sequence)

    def made(make: Callable[..., Call], function: Callable[..., Any]) -> Call:
        call = make(function)
        return lambda: jax.block_until_ready(call())

    return {
        "stock": partial(made, stock, layer), "jit": partial(made, jitted, layer),
        "frozen": partial(made, frozen, layer), "stock training": partial(made, stock, step),
        "jit training": partial(made, jitted, step),
    }  # fmt: skip


def torch_module(case: RecurrentCase, dtype: Any) -> tuple[Any, Any]:
    """PyTorch's layer with the same weights, and the sequence.

    Raises:
        ValueError: it has none.
    """
    import torch

    if case.cell not in ("lstm", "gru"):
        raise ValueError(f"PyTorch has no {case.cell}")
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case.cell](case.size, case.size)
    given, sequence = arrays(case)
    names = {"weight_ih_l0": "input", "weight_hh_l0": "state", "bias_ih_l0": "input_bias", "bias_hh_l0": "state_bias"}
    module.load_state_dict({name: torch.from_numpy(given[ours]) for name, ours in names.items()})
    return module.to(dtype), torch.from_numpy(sequence).to(dtype)


def torch_ways(case: RecurrentCase, policy: str) -> Makers:
    """Eager, under inference_mode; and a step of training."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case.dtype]
    module, sequence = torch_module(case, dtype)
    trained, _ = torch_module(case, dtype)
    optimizer = torch.optim.SGD(trained.parameters(), 1e-3)

    @torch.inference_mode()
    def forward() -> Any:
        return module(sequence)[0]

    def train() -> None:
        optimizer.zero_grad()
        (trained(sequence)[0].float() ** 2).mean().backward()
        optimizer.step()

    return {"PyTorch": lambda: forward, "PyTorch training": lambda: train}


def openvino_ways(case: RecurrentCase, policy: str) -> Makers:
    """Converted from PyTorch's; bf16 is a hint."""
    import openvino
    import torch

    from hlo_dispatch.bench.models.peers import called_by_openvino

    module, sequence = torch_module(case, torch.float32)
    with torch.no_grad():
        model = openvino.convert_model(module.eval(), example_input=sequence)
    model.reshape({model.inputs[0]: list(sequence.shape)})
    return {"OpenVINO": partial(called_by_openvino, model, (sequence,), case.dtype)}


def _mean(result: Any) -> float:
    """Mean size of what a way computed, so that two can be compared."""
    import numpy as np

    if hasattr(result, "get_output_tensor"):
        result = result.get_output_tensor(0).data
    elif hasattr(result, "float"):
        result = result.float().numpy()
    return float(np.abs(np.asarray(result, np.float32)).mean())


def sampled(calls: dict[str, Call], seconds: float) -> dict[str, list[float]]:
    """Samples of each call, for its share of so many seconds; a longer call runs once."""
    samples: dict[str, list[float]] = {}
    for way, call in calls.items():
        begin = now = time.perf_counter()
        samples[way] = []
        while not samples[way] or now - begin < seconds / len(calls):
            started = now
            call()
            now = time.perf_counter()
            samples[way].append(now - started)
    return samples


def main() -> None:
    """Serve a parent."""
    ways = {"jax": jax_ways, "torch": torch_ways, "openvino": openvino_ways}[sys.argv[1]]
    calls: dict[str, Call] = {}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "case" not in request:
            return sampled(calls, request["seconds"])
        calls.clear()
        end = time.perf_counter() + request["limit"]
        sizes: dict[str, float] = {}
        for way, make in ways(RecurrentCase(**request["case"]), request["policy"]).items():
            if way not in request["ways"]:
                continue
            if time.perf_counter() > end:
                break
            calls[way] = make()
            sizes[way] = 0.0 if "training" in way else _mean(calls[way]())
        return sizes

    serve(answer)


if __name__ == "__main__":
    main()
