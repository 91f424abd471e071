"""Freeze mode: whether arguments are frozen without being asked, of the environment's HLO_DISPATCH_FREEZE."""

from __future__ import annotations

import os

from hlo_dispatch.errors import PolicyError

FREEZE_VARIABLE = "HLO_DISPATCH_FREEZE"
AUTO, NOW, NEVER = "auto", "now", "never"


def freeze_mode() -> str:
    """The mode; "auto" where the variable is unset or empty.

    Raises:
        PolicyError: the variable names no mode.
    """
    value = os.environ.get(FREEZE_VARIABLE, "").strip().lower() or AUTO
    if value not in (AUTO, NOW, NEVER):
        raise PolicyError(
            f"{FREEZE_VARIABLE} is {value!r}; set it to auto (after some calls, where it is faster), now (in the first "
            "call), never, or unset it"
        )
    return value
