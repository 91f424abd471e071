"""Why a kernel that seems to be faster is left: the rules of measuring, in words."""

from __future__ import annotations

from hlo_dispatch.autotune.compare.timing import CERTAIN, Time
from hlo_dispatch.policy.measured import in_words


def why_not(time: Time, stock: float, least: float, certain: float = CERTAIN) -> str:
    """What its gain lacks; empty where it wins, or where it is slower, which its time says.

    Args:
        stock: seconds.
        least: seconds that it has to gain, besides the noise.
        certain: so many errors are taken for noise.
    """
    if time.gain > certain * time.error + least or time.seconds >= stock:
        return ""
    if time.gain <= 0:
        return "compared turn by turn it gains nothing"
    needed = f"the {in_words(least)} that it has to gain"
    if time.gain <= least:
        return f"its gain of {in_words(time.gain)} is less than {needed}"
    times = f"{certain:g} times " if certain != 1 else ""
    noise = f"{times}its uncertainty of {in_words(time.error)}"
    return f"its gain of {in_words(time.gain)} is less than {noise} and {needed}"
