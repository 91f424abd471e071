"""Process that times recurrent layers in one library: JAX, PyTorch or OpenVINO (worker.py)."""

# pyright: basic, reportMissingImports=false
# The frameworks have no complete type hints, and are not there everywhere.
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from hlo_dispatch.bench.recurrent.layers import RecurrentCase, arrays, in_jax, training_step
from hlo_dispatch.bench.worker import serve, timed

LIBRARIES: dict[str, tuple[str, ...]] = {
    "jax": ("stock", "jit", "frozen", "stock training", "jit training"),
    "torch": ("PyTorch", "PyTorch training"),
    "openvino": ("OpenVINO",),
}
"""Library → its ways; the name is its package's, too."""
Calls = dict[str, Callable[[], Any]]


def jax_calls(case: RecurrentCase, policy: str) -> Calls:
    """Stock, jitted, frozen; a step of training, stock and jitted."""
    import jax

    import hlo_dispatch

    layer, weights, sequence = in_jax(case)
    step = training_step(layer)
    calls: Calls = {}
    for name, function in (("stock", layer), ("stock training", step)):
        calls[name] = partial(jax.jit(function).lower(weights, sequence).compile(), weights, sequence)
    with hlo_dispatch.enabled(policy=policy):
        # Functions of their own: JAX gives stock's executables for the same ones.
        for name, function in (("jit", layer), ("jit training", step)):
            again = jax.jit(lambda *both, function=function: function(*both))
            calls[name] = partial(again.lower(weights, sequence).compile(), weights, sequence)
        frozen = hlo_dispatch.freeze(layer, weights)
        frozen(sequence)
    calls["frozen"] = partial(frozen, sequence)
    return {name: lambda call=call: jax.block_until_ready(call()) for name, call in calls.items()}


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


def torch_calls(case: RecurrentCase, policy: str) -> Calls:
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

    return {"PyTorch": forward, "PyTorch training": train}


def openvino_calls(case: RecurrentCase, policy: str) -> Calls:
    """Converted from PyTorch's; bf16 is a hint."""
    import openvino
    import torch

    from hlo_dispatch.bench.models.peers import called_by_openvino

    module, sequence = torch_module(case, torch.float32)
    with torch.no_grad():
        model = openvino.convert_model(module.eval(), example_input=sequence)
    model.reshape({model.inputs[0]: list(sequence.shape)})
    return {"OpenVINO": called_by_openvino(model, (sequence,), case.dtype)}


def _mean(result: Any) -> float:
    """Mean size of what a way computed, so that two can be compared."""
    import numpy as np

    if hasattr(result, "get_output_tensor"):
        result = result.get_output_tensor(0).data
    elif hasattr(result, "float"):
        result = result.float().numpy()
    return float(np.abs(np.asarray(result, np.float32)).mean())


def main() -> None:
    """Serve a parent."""
    make = {"jax": jax_calls, "torch": torch_calls, "openvino": openvino_calls}[sys.argv[1]]
    calls: Calls = {}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        if "case" in request:
            calls = {}
            made = make(RecurrentCase(**request["case"]), request["policy"])
            calls = {name: call for name, call in made.items() if name in request["ways"]}
            return {name: 0.0 if "training" in name else _mean(call()) for name, call in calls.items()}
        return timed(calls, request)

    serve(answer)


if __name__ == "__main__":
    main()
