"""The environment's variables that are on, off or unset."""

from __future__ import annotations

import os

from hlo_dispatch.errors import HloDispatchError

ON = ("1", "true", "yes", "on")
OFF = ("0", "false", "no", "off")
STRICT_VARIABLE = "HLO_DISPATCH_STRICT"
SEQUENCES_VARIABLE = "HLO_DISPATCH_SEQUENCES"


def switch(variable: str, error: type[HloDispatchError], zero: str, one: str) -> bool | None:
    """What the variable says, None where it is unset or empty; `zero` and `one` are what its values mean.

    `true`, `yes` and `on` are other words for 1, and `false`, `no` and `off` for 0, however they are written.

    Raises:
        error: it is something else.
    """
    value = os.environ.get(variable, "").strip()
    word = value.lower()
    if word and word not in ON + OFF:
        raise error(f"{variable} is {value!r}; set it to 0 ({zero}), to 1 ({one}), or unset it")
    return word in ON if word else None


def is_strict() -> bool:
    """Whether what fails in the pass is raised. What is no answer is none; installing refuses it."""
    return os.environ.get(STRICT_VARIABLE, "").strip().lower() in ON


def groups_calls() -> bool:
    """Whether runs of kernel calls become one call. What is no answer is none; installing refuses it."""
    return os.environ.get(SEQUENCES_VARIABLE, "").strip().lower() not in OFF


def check_switches(error: type[HloDispatchError]) -> None:
    """See to it that `is_strict()` and `groups_calls()` have an answer.

    Raises:
        error: the variable is something else.
    """
    switch(STRICT_VARIABLE, error, zero="stock XLA is used where the pass fails", one="what fails is raised")
    switch(SEQUENCES_VARIABLE, error, zero="each kernel call stays one of its own", one="runs of them are one call")
