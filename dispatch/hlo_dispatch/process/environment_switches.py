"""Environment switches: variables that are on, off or unset."""

from __future__ import annotations

import os

from hlo_dispatch.errors import HloDispatchError

ON = ("1", "true", "yes", "on")
OFF = ("0", "false", "no", "off")
STRICT_VARIABLE = "HLO_DISPATCH_STRICT"
SEQUENCES_VARIABLE = "HLO_DISPATCH_SEQUENCES"


def switch(variable: str, error: type[HloDispatchError], zero: str, one: str) -> bool | None:
    """Value of a switch, None where it is unset or empty; `zero` and `one` describe its values.

    `true`, `yes` and `on` are synonyms of 1, and `false`, `no` and `off` of 0, in any case.

    Raises:
        error: the value is invalid.
    """
    value = os.environ.get(variable, "").strip()
    word = value.lower()
    if word and word not in ON + OFF:
        raise error(f"{variable} is {value!r}; set it to 0 ({zero}), to 1 ({one}), or unset it")
    return word in ON if word else None


def is_strict() -> bool:
    """Whether failures of the pass are raised. An invalid value counts as off; installation refuses it."""
    return os.environ.get(STRICT_VARIABLE, "").strip().lower() in ON


def groups_calls() -> bool:
    """Whether kernel calls are combined into call groups. An invalid value counts as on; installation refuses it."""
    return os.environ.get(SEQUENCES_VARIABLE, "").strip().lower() not in OFF


def check_switches(error: type[HloDispatchError]) -> None:
    """Check the variables of `is_strict()` and `groups_calls()`.

    Raises:
        error: a value is invalid.
    """
    switch(STRICT_VARIABLE, error, zero="stock XLA is used where the pass fails", one="failures are raised")
    switch(SEQUENCES_VARIABLE, error, zero="each kernel call stays separate", one="successive calls are combined")
