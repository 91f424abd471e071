"""Overview of automatic freezing: what is frozen in this process, in bytes and in sentences."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from hlo_dispatch.jax_plugin.record import record
from hlo_dispatch.report.wording import duration, plural

if TYPE_CHECKING:
    from hlo_dispatch.automatic_freezing.call_site import CallSite
    from hlo_dispatch.automatic_freezing.jit import JittedFunction

functions: weakref.WeakSet[JittedFunction] = weakref.WeakSet()
"""What `jit` has returned."""


def totals() -> tuple[int, int]:
    """Number of the structures of calls that run frozen, and bytes of their preprocessed values."""
    frozen = [site for site in _sites() if site.program is not None]
    return len(frozen), sum(site.preparation.bytes for site in frozen)


def sentences() -> list[str]:
    """One sentence on each structure of calls: what is frozen, and how much faster it is, or why nothing is."""
    return [sentence(site) for site in _sites()]


def sentence(site: CallSite) -> str:
    """`predict: 12 arguments frozen (w, b, …), 1,024 bytes, 3.1 ms instead of 4.2 ms`."""
    if site.program is None:
        why = site.refusal or site.preparation.obstacle or "no arguments have stayed the same objects so far"
        return f"{site.name}: not frozen: {why}"
    names = ", ".join(site.names[:3]) + (", …" if len(site.names) > 3 else "")
    parts = [f"{plural(len(site.names), 'argument')} frozen ({names})", f"{site.preparation.bytes:,} bytes"]
    for trial in list(site.preparation.trials.values()):
        plain, frozen = trial.seconds
        if plain is not None and frozen is not None:
            parts.append(f"{duration(frozen)} instead of {duration(plain)}")
    return f"{site.name}: {', '.join(parts)}"


def _sites() -> list[CallSite]:
    return [site for function in list(functions) for site in function.sites]


record.include_frozen(totals, sentences)
