"""Page of the zoo's models: dispatched anchor ops, and the refusals of the rest.

The policy is `always`: whatever some kernel can compute counts as taken. Which of that is faster, measured choice says.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.zoo.count import OPCODES, Counts, left
from hlo_dispatch.ir.module_files import write_atomically
from hlo_dispatch.report import Report, explanation

_COLUMNS = ("convolutions", "products", "pools", "attention", "softmax and norms")
_ATTENTION = "exponential"
"""An attention is reported by its exponential, dispatched or not."""
_NORMS = frozenset(("softmax", "log_softmax", "layer_norm", "rms_norm"))
_HEAD = """\
# What kernels take of models

Written by `python -m bench.zoo --page {name}`: models at their real sizes, as XLA hands them over, and how much of
each some kernel can compute (the policy `always`; which of that is faster than stock, is measured where a program
runs). Norms and softmax that no pattern knows are not counted: stock computes them. A gradient's model is a whole
training step. Below the table: each reason for what is left, and where.

"""


@dataclass(frozen=True)
class ZooRow:
    """One model's line, and the reasons for what of it is left."""

    model: str
    taken: dict[str, tuple[int, int]]
    """Column → how many were taken, of how many."""
    reasons: Counter[tuple[str, str]]
    """(What is left, why) → how often."""


def row(model: str, counts: Counts, report: Report) -> ZooRow:
    """Row of one model: the pass's decisions for its module."""
    attentions = [region for region in report.candidates if region.opcode == _ATTENTION]
    norms = sum(region.dispatched and region.entry in _NORMS for region in report.regions)
    numbers = [(counts.dispatched[opcode], counts.anchors[opcode]) for opcode in OPCODES]
    numbers += [(sum(region.dispatched for region in attentions), len(attentions)), (norms, norms)]
    stays = [*left(report), *(region for region in attentions if not region.dispatched)]
    why = Counter(("attention" if r.opcode == _ATTENTION else r.opcode, _general(explanation(r))) for r in stays)
    return ZooRow(model, dict(zip(_COLUMNS, numbers, strict=True)), why)


def write(path: Path, rows: Iterable[ZooRow]) -> None:
    """Write the page to `path`: under another name first, then renamed."""
    write_atomically(str(path), page(list(rows), path.name).encode())


def page(rows: list[ZooRow], name: str) -> str:
    """The page's text."""
    lines = [f"| model | {' | '.join(_COLUMNS)} |", f"|---|{'---:|' * len(_COLUMNS)}"]
    lines += [f"| {row.model} | {' | '.join(_cell(*row.taken[column]) for column in _COLUMNS)} |" for row in rows]
    why: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        for reason, number in row.reasons.items():
            why[reason].append(f"{row.model} ({number})")
    lines += ["", "| left | why | where |", "|---|---|---|"]
    lines += [f"| {what} | {sentence} | {', '.join(models)} |" for (what, sentence), models in sorted(why.items())]
    return _HEAD.format(name=name) + "\n".join([*(f"{line}  " for line in header()), "", *lines]) + "\n"


def _cell(taken: int, number: int) -> str:
    return "" if not number else str(number) if taken == number else f"{taken} of {number}"


def _general(sentence: str) -> str:
    """Without the names of instructions, and fit for a table."""
    return re.sub(r"%[\w.-]+", "%…", sentence).replace("|", "\\|")
