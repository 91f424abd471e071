"""Programs whose linear algebra our own code computes, wherever there is some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

import hlo_dispatch
from hlo_dispatch.selection import family_cost_models
from side_by_side import QUICKLY


def choose_blocked(patch: pytest.MonkeyPatch) -> None:
    """Whatever the cost model expects of it."""
    patch.setattr(family_cost_models, "by_expected_speed", lambda match, _: sorted(match.kernels))
    patch.setattr(
        family_cost_models,
        "is_worth_calling_library",
        lambda match, _: (match.kernel.startswith("blocked."), "under test"),
    )


def compiled(program: Callable, *arguments: Any, kernel: str) -> Any:
    """The program's executable, which calls this kernel of ours."""
    with hlo_dispatch.enabled(policy="heuristic"):
        executable = jax.jit(lambda *inputs: program(*inputs)).lower(*arguments).compile(QUICKLY)
    assert f'custom_call_target="hlo_dispatch.blocked.{kernel}"' in executable.as_text()
    return executable
