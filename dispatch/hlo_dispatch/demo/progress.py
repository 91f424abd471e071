"""Progress output: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows the current step on standard error; a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._last = ""

    def step(self, what: str, done: float) -> None:
        """Print the current step; `done` (0 to 1) moves the bar, 0 means unknown progress."""
        if self._bar.disable:
            if what != self._last:
                self._console.print(f"… {what}", markup=False)
        else:
            self._bar.update(self._task, description=what, total=1.0 if done else None, completed=done)
        self._last = what

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
