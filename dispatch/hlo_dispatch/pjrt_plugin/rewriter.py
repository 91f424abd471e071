"""Rewriter of modules for hosts of the PJRT plugin."""

from __future__ import annotations

from hlo_dispatch.api import rewrite
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.pattern import load_tables, tables_or_default
from hlo_dispatch.pjrt_plugin.channel import Channel, CompileRequest
from hlo_dispatch.pjrt_plugin.trial import SLOWER
from hlo_dispatch.pjrt_plugin.verification import Verification
from hlo_dispatch.selection.decide import policy_or_default
from hlo_dispatch.vendor import libraries, users_kernels
from hlo_dispatch.vendor.onednn import ONEDNN
from hlo_dispatch.vendor.onemkl import ONEMKL
from hlo_dispatch.vendor.svml import SVML

_POLICY = "measure"
"""Default policy."""


def answer(channel: Channel, request: CompileRequest, verification: Verification) -> None:
    """Rewrite one program's module and answer; every failure is an answer."""
    try:
        policy = policy_or_default(None, _POLICY)
        rewritten = rewrite(request.module, policy=policy, prepare_constants=True).proto
        handlers = _users_kernels(rewritten or b"")
        # What a user's own table has is dispatched as soon as it matches.
        timed = policy == "measure" and not tables_or_default(None)
        problem = "" if rewritten is None else verification.problem(request, rewritten, handlers, timed=timed)
    except Exception as error:
        channel.answer_failed(f"the pass failed ({type(error).__name__}: {error})")
        return
    if rewritten is None or problem.startswith(SLOWER):
        channel.answer_unchanged()
    elif problem:
        channel.answer_failed(f"the dispatched module was refused: {problem}")
    else:
        channel.answer_rewritten(rewritten, "\n".join([*_libraries(rewritten), *(f"kernel={h}" for h in handlers)]))


def _users_kernels(module: bytes) -> list[str]:
    """Target, symbol and path of each kernel of a user's own that a module calls."""
    handlers = users_kernels.open_handlers(load_tables(tables_or_default(None)))
    return [f"{h.target} {h.symbol} {h.path}" for h in handlers if h.target.encode() in module]


def _libraries(module: bytes) -> list[str]:
    """The vendors' libraries that a module calls, as lines for the plugin, which has to load the same."""
    lines: list[str] = []
    for name, description in (("onednn", ONEDNN), ("onemkl", ONEMKL), ("svml", SVML)):
        library = libraries.loaded(description.name) if f"hlo_dispatch.{name}.".encode() in module else None
        if library is not None and not isinstance(library, Unavailable):
            lines += [f"{name}={library.path}", f"{name}_bound={int(library.bound)}"]
    return lines
