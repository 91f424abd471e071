"""Command `cache`: shows, exports, imports and clears the measurement store."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from hlo_dispatch.autotune.store import FILE, Entry, Store, StoreError
from hlo_dispatch.ir import module_files
from hlo_dispatch.report.terminal import console, make_table, row
from hlo_dispatch.report.wording import duration, plural
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.selection.measurements import STOCK

_SECONDS_PER_DAY = 86_400.0


def show(*, regions: bool, as_json: bool) -> None:
    """Print the store's path and contents."""
    store = Store()
    entries, contexts = store.entries(), store.contexts()
    if as_json:
        print(json.dumps([entry.to_dict() for entry in entries], indent=2))
        return
    out = console()
    here = this_context().fingerprint
    out.print(Text(f"{store.path}: {plural(len(entries), 'measurement')}"), soft_wrap=True)
    if not entries:
        return
    out.print()
    table = make_table("", "measured with", "kernels chosen", "wrong", "usable here")
    for fingerprint, about in contexts.items():
        own = [entry.measured for entry in entries if entry.context == fingerprint]
        what = f"{about['cpu']}, {about['threads']} threads, {', '.join(about['libraries'])}, jaxlib {about['jaxlib']}"
        chosen, wrong = sum(m.chosen != STOCK and not m.provisional for m in own), sum(bool(m.refused) for m in own)
        row(table, str(len(own)), what, str(chosen), str(wrong), "yes" if fingerprint == here else "no")
    out.print(table)
    if regions:
        out.print()
        out.print(_regions([entry for entry in entries if entry.context == here]))


def _regions(entries: Sequence[Entry]) -> Table:
    table = make_table("region", "result", "stock ms", "chosen", "saves", "")
    for entry in sorted(entries, key=lambda entry: -entry.measured.gain):
        measured = entry.measured
        is_open = measured.failed_attempts or measured.provisional
        note = measured.sentence() if is_open else next(iter(measured.refused.values()), "")
        stock = f"{measured.stock * 1e3:.3f}" if not measured.failed_attempts else ""
        chosen = measured.chosen if not is_open else ""
        saved = duration(measured.gain) if chosen not in ("", STOCK) else ""
        row(table, measured.formula, measured.shape, stock, chosen, saved, note)
    return table


def export(output: str) -> None:
    """Write all measurements to a file; - is standard output."""
    module_files.write_atomically(output, Store().export().encode())


def load(path: Path) -> None:
    """Add exported measurements.

    Raises:
        StoreError: the file is not an export; it says which file.
        OSError: it cannot be read.
    """
    try:
        count = Store().load(path.read_text(encoding="utf-8", errors="replace"))
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None
    console().print(Text(f"{plural(count, 'measurement')} taken over from {path}"), soft_wrap=True)


def clear() -> None:
    """Delete all measurements, reproducers and broken stores."""
    store = Store()
    count = store.remove()
    shutil.rmtree(store.directory / "reproducers", ignore_errors=True)
    for file in store.directory.glob(f"{FILE}.broken-*"):
        file.unlink(missing_ok=True)
    console().print(Text(f"{plural(count, 'measurement')} forgotten"))


def prune(*, days: float | None) -> None:
    """Delete measurements that this machine cannot use, or that are older than so many days."""
    store = Store()
    if days is None:
        count = store.remove(other_than=this_context().fingerprint)
    else:
        count = store.remove(older_than=time.time() - days * _SECONDS_PER_DAY)
    console().print(Text(f"{plural(count, 'measurement')} forgotten"))
