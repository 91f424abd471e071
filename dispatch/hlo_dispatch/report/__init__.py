"""Report: what the pass saw in one module and what it did about it, as values, and their text and HTML.

The values need neither jax nor a terminal. Renderers are loaded on use: `terminal.py` needs rich.
"""

from __future__ import annotations

from hlo_dispatch.report.values import (
    CallSequence,
    Group,
    PassRun,
    Region,
    Report,
    StridedCall,
    explanation,
    grouped,
)

__all__ = ["CallSequence", "Group", "PassRun", "Region", "Report", "StridedCall", "explanation", "grouped"]
