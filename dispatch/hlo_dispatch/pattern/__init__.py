"""The table's language: what activations, binary epilogues, anchors and kernels there are.

`load_tables()` reads and checks YAML; `Recogniser` says which activation a function of one variable is.
"""

from __future__ import annotations

from hlo_dispatch.pattern.load import load_tables, shipped_tables, tables_or_default
from hlo_dispatch.pattern.recognise import TOLERANCES, Nearest, Recognised, Recogniser
from hlo_dispatch.pattern.table import Activation, AnchorKind, Binary, KernelBinding, Routine, Table

__all__ = [
    "TOLERANCES",
    "Activation",
    "AnchorKind",
    "Binary",
    "KernelBinding",
    "Nearest",
    "Recognised",
    "Recogniser",
    "Routine",
    "Table",
    "load_tables",
    "shipped_tables",
    "tables_or_default",
]
