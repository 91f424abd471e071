"""The environment's variables that are 0, 1 or unset."""

from __future__ import annotations

import os

from .errors import HloDispatchError


def switch(variable: str, error: type[HloDispatchError], zero: str, one: str) -> bool | None:
    """What the variable says, None where it is unset or empty; `zero` and `one` are what its values mean.

    Raises:
        error: it is something else.
    """
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise error(f"{variable} is {value!r}; set it to 0 ({zero}), to 1 ({one}), or unset it")
    return value == "1" if value else None
