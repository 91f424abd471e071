"""Pattern language: the tables of activations, binary post-ops, anchor ops, structural patterns, routines and kernels.

`load_tables()` reads YAML (`load.py`, `schema.py`), resolves and checks it (`build.py`, `prove.py`). Activations are
recognized by value: `Recogniser` evaluates a function of one variable in float64 at probe points (`probes.py`) and
compares it with each formula (`agreement.py`). `read_expression.py` and `constraints.py` are the language of
structural patterns. Each op kind of anchor ops is declared in `op_kinds.py`; `epilogue_blocks.py` has what may follow
one, `kernel_attributes.py` the attributes that follow from the rest of a kernel's entry.
"""

from __future__ import annotations

from hlo_dispatch.pattern.load import load_tables, shipped_tables, tables_or_default
from hlo_dispatch.pattern.recognise import TOLERANCES, NearestActivation, Recognised, Recogniser
from hlo_dispatch.pattern.table import Activation, AnchorKind, Binary, KernelBinding, Routine, Table

__all__ = [
    "TOLERANCES",
    "Activation",
    "AnchorKind",
    "Binary",
    "KernelBinding",
    "NearestActivation",
    "Recognised",
    "Recogniser",
    "Routine",
    "Table",
    "load_tables",
    "shipped_tables",
    "tables_or_default",
]
