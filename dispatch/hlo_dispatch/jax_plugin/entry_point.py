"""Plugin entry point: JAX imports this module through the `jax_plugins` entry point.

`HLO_DISPATCH=1` does what `install()` does, with `HLO_DISPATCH_TABLES` and `HLO_DISPATCH_POLICY`. Where it is 0, empty
or unset nothing happens. Invalid variables are logged in one line, and JAX starts without the pass.
"""

from __future__ import annotations

import os
from functools import cache

from hlo_dispatch.errors import HloDispatchError, PolicyError
from hlo_dispatch.process.environment_switches import switch

ENABLE_VARIABLE = "HLO_DISPATCH"
_is_requested = False


def request() -> None:
    """Have the pass installed when JAX starts, as HLO_DISPATCH=1 does; HLO_DISPATCH=0 still leaves it out.

    Raises:
        PolicyError: the variable is invalid.
    """
    global _is_requested
    _is_requested = True
    is_open()


def is_open() -> bool:
    """Whether the environment enables the pass for every JAX program, or this process asked for it.

    Raises:
        PolicyError: the variable is invalid.
    """
    wanted = switch(ENABLE_VARIABLE, PolicyError, zero="programs install the pass themselves", one="every JAX program")
    return _is_requested if wanted is None else wanted


@cache
def initialize() -> None:
    """Entry point: JAX calls it during plugin discovery, before a backend exists; idempotent."""
    try:
        if not is_open():
            return
        from hlo_dispatch.jax_plugin import hook

        hook.install_from_environment()
    except HloDispatchError as error:
        _say(str(error))
    except Exception as error:  # JAX is starting
        _say(f"{type(error).__name__}: {error}")


def _say(problem: str) -> None:
    import logging  # takes as long as a small program

    value = os.environ.get(ENABLE_VARIABLE, "")
    setting = f"{ENABLE_VARIABLE}={value}" if value or not _is_requested else "hlo-dispatch run"
    logging.getLogger("hlo_dispatch").error("%s, but hlo-dispatch is not installed: %s", setting, problem)
