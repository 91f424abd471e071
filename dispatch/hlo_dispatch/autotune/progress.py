"""What a person sees of a compile that takes longer because it measures: nothing for the first second, and then a bar
on a terminal, or a single line where there is none.

The terminal belongs to the user's program, which may draw bars of its own there, on any thread. So nothing is moved:
the bar is written behind wherever the cursor stands, in one piece, which ends with the cursor where it was, and what
is there in the end is wiped out from the cursor on. No line is begun, none is scrolled, nothing of rich's or tqdm's is
drawn over.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import threading
import time

from hlo_dispatch.errors import PolicyError
from hlo_dispatch.process.environment_switches import switch

VARIABLE = "HLO_DISPATCH_PROGRESS"
PATIENCE = 1.0
"""Seconds of measuring before anything is said."""
_EVERY = 0.5
"""Seconds between two pictures: whoever measures is disturbed as little as possible."""
_LONGEST_WAIT = 1.0
_LONGEST_NAME = 40
_BAR_WIDTH = 20
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_ERASE = "\x1b[K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
# Two modules may be measured in turns, by two threads.
_drawing = threading.Lock()


class Line:
    """Says how far one module is; call it with what `TuningProgress` is told."""

    def __init__(self, module: str = "") -> None:
        self._module = module[:_LONGEST_NAME]
        self._is_wanted = is_wanted()
        self._begun: float | None = None
        self._has_said = False
        self._over = threading.Event()
        self._teller: threading.Thread | None = None
        self._now = ("", 0, 0)
        """What is measured, how many regions are done and how many there are."""
        self._end = math.inf

    def __call__(self, what: str, done: int, count: int, left: float) -> None:
        """Note the step; where `what` is empty it is over for now."""
        if not self._is_wanted:
            return
        if not what:
            self._stop()
            return
        now = time.monotonic()
        is_first = not self._now[0]
        self._now, self._end = (what, done, count), now + left
        if self._begun is None:
            self._begun = now
        if is_first:
            self._over = threading.Event()
            # While the interpreter ends no thread can be started.
            with contextlib.suppress(RuntimeError):
                self._teller = threading.Thread(target=self._tell, args=(self._over,), daemon=True)
                self._teller.start()

    def _stop(self) -> None:
        self._over.set()
        self._now = ("", 0, 0)
        if self._teller is not None and self._teller.ident is not None:
            self._teller.join(timeout=_LONGEST_WAIT)  # what the program prints next comes after what is wiped out
        self._teller = None

    def _tell(self, over: threading.Event) -> None:
        """On a thread of its own, since one step may take long."""
        assert self._begun is not None
        if over.wait(max(0.0, self._begun + PATIENCE - time.monotonic())):
            return
        if not is_terminal():
            self._say_once()
            return
        try:
            while not over.is_set():
                _write(f"{_SAVE}{_NO_WRAP}{_ERASE}{self._picture()}{_WRAP}{_RESTORE}")
                over.wait(_EVERY)
        finally:
            _write(_ERASE)

    def _say_once(self) -> None:
        if self._has_said:
            return
        self._has_said = True
        _, _, count = self._now
        whole = f" {self._module}" if self._module else " a module"
        what = f" {count} region{'' if count == 1 else 's'} of{whole}" if count else whole
        left = self._end - time.monotonic()
        limit = f", at most {max(1, math.ceil(left))} s" if math.isfinite(left) else ""
        _write(f"hlo-dispatch: measuring{what}{limit}; {VARIABLE}=0 silences this\n")

    def _picture(self) -> str:
        # Loading it takes longer than most compiles that measure nothing.
        from rich.console import Console
        from rich.progress_bar import ProgressBar

        _, done, count = self._now
        console = Console(file=sys.stderr, width=shutil.get_terminal_size().columns, legacy_windows=False)
        with console.capture() as bar:
            console.print(ProgressBar(total=count or None, completed=done, width=_BAR_WIDTH, pulse=not count), end="")
        left = self._end - time.monotonic()
        parts = [f"{done} of {count} regions" if count else "the whole program"]
        if math.isfinite(left):
            parts.append(f"{max(0.0, left):.0f} s left")
        return f"hlo-dispatch: measuring {self._module} {bar.get().rstrip()} {', '.join(parts)}"


def is_wanted() -> bool:
    """Whether anything may be said at all; a variable that says nothing sensible silences nobody."""
    try:
        return switch(VARIABLE, PolicyError, "nothing is said", "slow compiles say that they measure") is not False
    except PolicyError:
        return True


def is_terminal() -> bool:
    """Whether standard error is a terminal, and nobody has put something of his own in front of it."""
    stream = sys.stderr
    # What stands for it, while rich or tqdm draw, keeps whole lines above their bars, and gets one.
    return stream is not None and stream is sys.__stderr__ and stream.isatty()


def _write(text: str) -> None:
    # Whoever closed standard error does not want to know.
    with _drawing, contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()
