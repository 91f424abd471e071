"""Rewriter of modules for hosts of the PJRT plugin."""

from __future__ import annotations

from hlo_dispatch.api import rewrite
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.pjrt_plugin.channel import Channel
from hlo_dispatch.pjrt_plugin.verification import Verification
from hlo_dispatch.selection.decide import policy_or_default
from hlo_dispatch.vendor import libraries
from hlo_dispatch.vendor.onednn import ONEDNN
from hlo_dispatch.vendor.onemkl import ONEMKL
from hlo_dispatch.vendor.svml import SVML

_POLICY = "measure"
"""Default policy."""


def answer(channel: Channel, module: bytes, verification: Verification) -> None:
    """Rewrite one module and answer; every failure is an answer."""
    try:
        rewritten = rewrite(module, policy=policy_or_default(None, _POLICY), prepare_constants=True).proto
        problem = verification.problem(module, rewritten) if rewritten is not None else ""
    except Exception as error:
        channel.answer_failed(f"the pass failed ({type(error).__name__}: {error})")
        return
    if rewritten is None:
        channel.answer_unchanged()
    elif problem:
        channel.answer_failed(f"the dispatched module was refused: {problem}")
    else:
        channel.answer_rewritten(rewritten, _libraries(rewritten))


def _libraries(module: bytes) -> str:
    """The vendors' libraries that a module calls, as lines for the plugin, which has to load the same."""
    lines: list[str] = []
    for name, description in (("onednn", ONEDNN), ("onemkl", ONEMKL), ("svml", SVML)):
        library = libraries.loaded(description.name) if f"hlo_dispatch.{name}.".encode() in module else None
        if library is not None and not isinstance(library, Unavailable):
            lines += [f"{name}={library.path}", f"{name}_bound={int(library.bound)}"]
    return "\n".join(lines)
