"""Acceptance rules: the sentence that says why a kernel that seems faster than stock XLA is not chosen."""

from __future__ import annotations

from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.selection.measurements import in_words


def missing_gain(time: Time, stock: float, least: float) -> str:
    """The rule that a losing candidate's gain misses; empty where it is slower than stock.

    Args:
        stock: seconds of stock's code.
        least: required gain in seconds, besides the noise.
    """
    if time.seconds >= stock:
        return ""
    if time.gain <= 0:
        return "compared turn by turn it gains nothing"
    needed = f"the {in_words(least)} that it has to gain"
    if time.gain <= least:
        return f"its gain of {in_words(time.gain)} is less than {needed}"
    return f"its gain of {in_words(time.gain)}, uncertain by {in_words(time.error)}, is not surely more than {needed}"
