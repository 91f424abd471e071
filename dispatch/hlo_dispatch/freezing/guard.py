"""Building a frozen program as a guest: counted as a compile is, and stock XLA's where something of ours fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TypeVar

from hlo_dispatch.freezing.build import build
from hlo_dispatch.hlo.split import Split
from hlo_dispatch.host.switches import is_strict
from hlo_dispatch.jax_plugin.hook import leave_to_stock
from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.rewriting.rewriter import Rewriter
from hlo_dispatch.rewriting.splitting.cut import uncut

_logger = logging.getLogger("hlo_dispatch")
_Result = TypeVar("_Result")


def attempted(attempt: Callable[[], _Result], what: str) -> _Result | None:
    """What an attempt gives that freezing can do without; None, counted and said, where it fails.

    Raises:
        Exception: what failed, with HLO_DISPATCH_STRICT=1.
    """
    begin = time.perf_counter()
    try:
        return attempt()
    except Exception as error:
        record.fail(error)
        record.count(rewritten=False, failed=True, seconds=time.perf_counter() - begin)
        if is_strict():
            raise
        _logger.warning("hlo-dispatch failed at %s, and freezes without it (%s: %s)", what, type(error).__name__, error)
        return None


def built(
    serialized: bytes, frozen: AbstractSet[int], rewriter: Rewriter, widened: AbstractSet[int] = frozenset()
) -> Split:
    """As `build`; where it fails the whole module, undispatched, and one warning.

    Raises:
        Exception: what failed, with HLO_DISPATCH_STRICT=1.
    """
    begin = time.perf_counter()
    split: Split | None = None
    try:
        split = build(serialized, frozen, rewriter, widened)
        if split.report is not None:
            record.keep(split.report)
        return split
    except Exception as error:
        leave_to_stock(error, serialized)
        return uncut(serialized, frozen)
    finally:
        is_rewritten = split is not None and split.report is not None and bool(split.report.dispatched)
        record.count(rewritten=is_rewritten, failed=split is None, seconds=time.perf_counter() - begin)
