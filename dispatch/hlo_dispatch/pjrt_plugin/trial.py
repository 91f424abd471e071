"""Whole-program trial on the plugin's runtime: the rewritten module against stock's, interleaved.

The pass measures by JAX's XLA, whose code for what is not dispatched may be faster or slower than the runtime's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hlo_dispatch.autotune.compare.timing import Time, interleaved
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime
from hlo_dispatch.pjrt_plugin.c_client import CClient
from hlo_dispatch.selection.measurements import in_words

SECONDS = 1.0
"""Duration of a trial, some times as long where other work disturbs it."""
BUSY_LOSS = 0.05
"""Loss, as a fraction of stock's time, that shows in the shortest runs of a disturbed trial."""
SLOWER = "it is slower than stock's on this runtime"
"""What the sentence about a lost trial begins with."""
DISTURBED = "while other work ran"
"""What it ends with where another trial might end differently."""


def trial(
    client: CClient, executables: Sequence[int], inputs: Sequence[Any], types: Sequence[str], results: int, left: float
) -> str:
    """Why the second executable is not to be used in the first one's place; empty: it is not shown to be slower.

    Args:
        inputs: operands for which both were verified.
        types: element types of the operands.
        results: number of results.
        left: seconds until the answer has to be there; without time for a trial there is no verdict.
    """
    with client.uploaded(inputs, types) as operands:
        calls = [_TimedRun(partial(client.run_kept, executable, operands, results)) for executable in executables]
        try:
            stock, rewritten = interleaved(calls, seconds=SECONDS, deadline=Deadline(left))
        except OutOfTime:
            return ""
    return verdict(stock, rewritten, calls[0].processor_seconds, calls[1].processor_seconds)


class _TimedRun:
    """A module's run, with the least time that all threads together took for one."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self.processor_seconds = math.inf

    def __call__(self) -> None:
        begin = time.process_time()
        self._run()
        self.processor_seconds = min(self.processor_seconds, time.process_time() - begin)


def verdict(stock: Time, rewritten: Time, stock_processor: float, processor: float) -> str:
    """The sentence about a lost trial; empty: it is not lost.

    Where other work ran in all turns, a call whose threads wait for each other waits longer for a processor that it
    shares: even the shortest run then says too little, and the modules' processor times count as well.

    Args:
        stock_processor: the least processor seconds of a run of stock's module.
        processor: those of the rewritten one.
    """
    if rewritten.is_disturbed:
        loses = rewritten.least > (1 + BUSY_LOSS) * stock.least and processor > stock_processor
        why = f", {DISTURBED}"
        seconds = rewritten.least, stock.least
    else:
        loses, why = rewritten.gains_less(0.0), ""
        seconds = rewritten.seconds, stock.seconds
    own, theirs = map(in_words, seconds)
    return f"{SLOWER}: {own} against {theirs}{why}" if loses else ""
