"""Peers: how each one compiles a model to a callable; a call returns when its result is ready."""

# pyright: basic, reportMissingImports=false
# The frameworks have no complete type hints, and are not there everywhere.
from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from hlo_dispatch.bench.models.catalogue import OURS, Job
from hlo_dispatch.report import Report

_INPUTS = 4
_LONGEST_TRIAL = 300.0
Call = Callable[[], Any]
Compile = Callable[[], Call]
"""Compiles; what the model's own code did before (building it, filling its weights) is not part of it."""


def prepare(peer: str, job: Job, options: dict[str, int], policy: str) -> tuple[Compile, dict[str, Any]]:
    """Build the model; returns how to compile it, and a dict that compiling fills with what there is to say."""
    said: dict[str, Any] = {}
    if peer in ("stock", *OURS, "xla-onednn"):
        return _jax(peer, job, options, policy, said), said
    return (_openvino if peer == "openvino" else _torch)(peer, job, options, said), said


def _jax(peer: str, job: Job, options: dict[str, int], policy: str, said: dict[str, Any]) -> Compile:
    import jax

    import hlo_dispatch
    from hlo_dispatch.bench.models import in_jax

    hlo_dispatch.uninstall()
    jax.config.update("jax_enable_compilation_cache", False)
    function, arguments = in_jax.build(job.model, job.dtype, job.batch, options)
    arguments, count = jax.device_put(arguments), in_jax.leading_weights(job.model)
    weights, inputs = arguments[:count], _copies(partial(jax.tree.map, jax.numpy.array), arguments[count:])

    def compile() -> Call:
        if peer in OURS:
            hlo_dispatch.install(policy=policy)
        if peer == "ours-frozen":
            frozen = hlo_dispatch.freeze(function, *weights)
            jax.block_until_ready(frozen(*next(inputs)))
            said.update(_said([program.dispatched for program in frozen.report.programs]))
            said["note"] = "compiling prepares the weights, and runs once"
            return lambda: jax.block_until_ready(frozen(*next(inputs)))
        if peer == "ours-auto":
            return _automatic(function, weights, inputs, said)
        compiled = jax.jit(function).lower(*arguments).compile()
        if peer == "ours":
            said.update(_said(hlo_dispatch.reports()))
        return lambda: jax.block_until_ready(compiled(*weights, *next(inputs)))

    return compile


def _automatic(
    function: Callable[..., Any], weights: Sequence[Any], inputs: Iterator[list[Any]], said: dict[str, Any]
) -> Call:
    """Calls of `hlo_dispatch.jit`, after its trial."""
    import jax

    import hlo_dispatch

    jitted = hlo_dispatch.jit(function)

    def call() -> Any:
        return jax.block_until_ready(jitted(*weights, *next(inputs)))

    end = time.monotonic() + _LONGEST_TRIAL
    call()
    while time.monotonic() < end and not all(site.is_settled for site in jitted.sites):
        call()
    said.update(_said(hlo_dispatch.reports()))
    said["note"] = f"compiling goes on until its trial has ended: {'; '.join(jitted.report)}"
    return call


def _copies(copy: Callable[[Any], Any], inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Copies of the inputs in turn: for every peer they are other objects, and in other memory, from call to call."""
    return itertools.cycle([[copy(value) for value in inputs] for _ in range(_INPUTS)])


def _said(reports: Iterable[Report | None]) -> dict[str, Any]:
    known = [report for report in reports if report is not None]
    return {
        "regions": sum(len(report.regions) for report in known),
        "dispatched": sum(len(report.dispatched) for report in known),
        "pass": sum(report.seconds for report in known),
    }


def _torch(peer: str, job: Job, options: dict[str, int], said: dict[str, Any]) -> Compile:
    import torch

    from hlo_dispatch.bench.models import in_torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    module, inputs = in_torch.build(job.model, job.dtype, job.batch, options)
    if in_torch.is_keras(job.model):
        module = in_torch.traced(module, inputs)
    # What it compiled for an earlier round would hide what compiling takes.
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

    def compile() -> Call:
        if peer == "torch-frozen":
            from torch._inductor import config

            config.freezing = True
        compiled = torch.compile(module)
        said["note"] = "compiles in its first call"
        copies = _copies(torch.clone, inputs)

        def call() -> Any:
            # Freezing looks for no_grad, which inference_mode is not.
            with torch.no_grad():
                return compiled(*next(copies))

        return call

    return compile


def _openvino(peer: str, job: Job, options: dict[str, int], said: dict[str, Any]) -> Compile:
    import openvino
    import torch

    from hlo_dispatch.bench.models import in_torch

    # bf16 is a way of computing here, chosen by a hint: the model itself stays f32.
    module, inputs = in_torch.build(job.model, "f32", job.batch, options)

    def compile() -> Call:
        with torch.no_grad():
            try:
                first, *more = inputs
                model = openvino.convert_model(module, example_input=inputs if more else first)
            except Exception:
                # PyTorch's tracing has no way through some models (GPT-2's masks); its export has.
                model = openvino.convert_model(torch.export.export(module, inputs))
                said["note"] = "converted by torch.export"
        # The example's shapes are the ones that are asked for: dynamic ones would be slower.
        model.reshape({port: list(value.shape) for port, value in zip(model.inputs, inputs, strict=True)})
        return called_by_openvino(model, inputs, job.dtype)

    return compile


def called_by_openvino(model: Any, inputs: Any, precision: str) -> Call:
    """OpenVINO's model compiled for all threads; each call takes one of some copies of PyTorch's tensors."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    copies = _copies(lambda value: value.numpy().copy(), inputs)

    def call() -> Any:
        request.infer(next(copies), share_inputs=True, share_outputs=True)
        return request

    return call
