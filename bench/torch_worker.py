"""The worker that runs cases with PyTorch, eager."""

# pyright: basic, reportMissingImports=false
# torch is not there everywhere.
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hlo_dispatch.bench.cases import make_case
from hlo_dispatch.bench.worker import serve, timed


def main() -> None:
    """Serve a parent."""
    calls: dict[str, Callable[[], object]] = {}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        import torch

        from hlo_dispatch.bench import in_jax, in_torch

        if "hello" in request:
            torch.set_num_threads(len(os.sched_getaffinity(0)))
            return {"version": torch.__version__}
        if "case" in request:
            calls = {}
            case = make_case(*request["case"])
            operands, run = in_torch.arguments(case, in_jax.arguments(case)), in_torch.function(case)
            calls = {"torch": lambda: run(*operands)}
            run(*operands)
            return {}
        return timed(calls, request)

    serve(answer)


if __name__ == "__main__":
    main()
