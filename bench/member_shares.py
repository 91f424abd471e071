"""Shares of a call group's members in its time: each member is timed alone, without XLA."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hlo_dispatch import _kernels
from hlo_dispatch.ir.attributes import Attributes, to_text
from hlo_dispatch.ir.kernel_call import KernelCall

_OF_GROUP = ("target", "inputs", "output", "accumulated")
_REPEATS = 5


def member_shares(group: KernelCall) -> dict[str, tuple[int, float]]:
    """Kernel's target → how many members call it, and their share of the group's time, estimated.

    Returns:
        nothing where a member cannot be called alone.
    """
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for number in range(group.attributes["members"]):
        member = group.attributes[f"member_{number}"]
        target = member["target"]
        took = _seconds(target, to_text(_own_attributes(group, member)))
        if took is None:
            return {}
        counts[target] = counts.get(target, 0) + 1
        seconds[target] = seconds.get(target, 0.0) + took
    whole = sum(seconds.values())
    return {target: (counts[target], seconds[target] / whole) for target in counts}


def _own_attributes(group: KernelCall, member: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in member.items() if name not in _OF_GROUP}


@lru_cache(maxsize=512)
def _seconds(target: str, attributes: str) -> float | None:
    """Seconds of the kernel on memory of its own; None where it cannot be called alone."""
    try:
        call = _kernels.raw_call(target, dict(Attributes(text=attributes)), [])
        _kernels.run_raw(call, 1)
        begin = time.perf_counter()
        _kernels.run_raw(call, _REPEATS)
        return (time.perf_counter() - begin) / _REPEATS
    except (NotImplementedError, ValueError, ImportError):
        return None
