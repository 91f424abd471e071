"""The soak's figure: every process's memory over time, and when it was killed."""

# pyright: basic, reportMissingImports=false
# jax has no complete type hints.
from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the figure into a PNG file."""
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for process in found["processes"]:
        if not process["samples"]:
            continue
        minutes = [time / 60 for time, _ in process["samples"]]
        megabytes = [size / 1e6 for _, size in process["samples"]]
        is_first = process["number"] == 0
        label = "never killed" if is_first else None
        axes.plot(
            minutes, megabytes, color="#0b6e99" if is_first else "#8a94a3", lw=2.2 if is_first else 1.0, label=label,
            zorder=3 if is_first else 2,
        )  # fmt: skip
        if process["killed"] is not None:
            axes.plot(minutes[-1], megabytes[-1], "x", color="#c9533d", ms=7, zorder=4)
    axes.plot([], [], color="#8a94a3", lw=1.0, label="the others")
    axes.plot([], [], "x", color="#c9533d", ms=7, label="kill -9")
    axes.axvline(found["seconds"] / 120, color="#d8dee6", zorder=1)
    axes.set(xlabel="minutes", ylabel="MB resident", xlim=(0, None), ylim=(0, None))
    axes.set_title(
        f"{found['done']:,} programs, {found['measured']:,} regions measured, {found['killed']} processes killed, "
        f"{len(found['problems'])} problems", loc="left", fontsize=10,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)
