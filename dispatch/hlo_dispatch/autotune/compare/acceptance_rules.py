"""Why a kernel that seems to be faster is left: the rules of measuring, in words."""

from __future__ import annotations

from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.selection.measurements import in_words


def missing_gain(time: Time, stock: float, least: float) -> str:
    """What the gain of one that does not win lacks; empty where it is slower, which its time says.

    Args:
        stock: seconds.
        least: seconds that it has to gain, besides the noise.
    """
    if time.seconds >= stock:
        return ""
    if time.gain <= 0:
        return "compared turn by turn it gains nothing"
    needed = f"the {in_words(least)} that it has to gain"
    if time.gain <= least:
        return f"its gain of {in_words(time.gain)} is less than {needed}"
    return f"its gain of {in_words(time.gain)}, uncertain by {in_words(time.error)}, is not surely more than {needed}"
