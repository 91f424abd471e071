"""The worker that runs everyday operations with PyTorch, eager, and with NumPy."""

# pyright: basic, reportMissingImports=false
# torch is not there everywhere.
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_dispatch.bench.everyday_programs import DTYPES, OPERATIONS, EverydayOperation, drawn
from hlo_dispatch.bench.worker import serve, timed


def of_torch(
    operation: EverydayOperation, arrays: list[np.ndarray], dtype: str, gradient: bool
) -> Callable[[], object] | None:
    """A call of PyTorch's, or None where it has no such operation."""
    import torch

    run = operation.torch
    if run is None:
        return None
    to = getattr(torch, DTYPES[dtype])
    operands = [torch.from_numpy(a).to(to) if a.dtype == np.float32 else torch.from_numpy(a) for a in arrays]
    if not gradient:
        return lambda: run(torch, *operands)
    first = operands[0].requires_grad_()

    def both_ways() -> object:
        return torch.autograd.grad(run(torch, *operands).sum(), first)

    return both_ways


def of_numpy(
    operation: EverydayOperation, arrays: list[np.ndarray], dtype: str, gradient: bool
) -> Callable[[], object] | None:
    """A call of NumPy's, or None where it has no such operation, element type or gradient."""
    run = operation.numpy
    if run is None or gradient or dtype == "bf16":
        return None
    operands = [a.astype(DTYPES[dtype]) if a.dtype == np.float32 else a for a in arrays]
    return lambda: run(*operands)


PEERS = {"PyTorch": of_torch, "NumPy": of_numpy}


def main() -> None:
    """Serve a parent; a case is an operation's number, an element type, a number of elements, and whether its gradient
    is asked for.
    """
    calls: dict[str, Callable[[], object]] = {}
    peers = dict(PEERS)
    try:
        import torch
    except ImportError:
        peers.pop("PyTorch")
    else:
        torch.set_num_threads(len(os.sched_getaffinity(0)))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        if "hello" in request:
            return {"peers": list(peers)}
        if "case" in request:
            number, dtype, elements, gradient = request["case"]
            operation, failed = OPERATIONS[number], {}
            arrays = drawn(operation, elements)
            calls = {}
            for name, make in peers.items():
                try:
                    if call := make(operation, arrays, dtype, gradient):
                        call()
                        calls[name] = call
                except (RuntimeError, TypeError, NotImplementedError) as error:
                    failed[name] = " ".join(str(error).split())[:200]
            return {"failed": failed}
        return timed(calls, request)

    serve(answer)


if __name__ == "__main__":
    main()
