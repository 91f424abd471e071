"""Plugin entry point: JAX imports this module through the `jax_plugins` entry point.

`HLO_DISPATCH=1` does what `install()` does, with `HLO_DISPATCH_TABLES` and `HLO_DISPATCH_POLICY`. Where it is 0, empty
or unset nothing happens. Invalid variables are logged in one line, and JAX starts without the pass.
"""

from __future__ import annotations

import logging
import os
from functools import cache

from hlo_dispatch.errors import HloDispatchError, PolicyError
from hlo_dispatch.process.environment_switches import switch

ENABLE_VARIABLE = "HLO_DISPATCH"


def is_open() -> bool:
    """Whether the environment enables the pass for every JAX program.

    Raises:
        PolicyError: the variable is invalid.
    """
    wanted = switch(ENABLE_VARIABLE, PolicyError, zero="programs install the pass themselves", one="every JAX program")
    return bool(wanted)


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
    setting = f"{ENABLE_VARIABLE}={os.environ.get(ENABLE_VARIABLE, '')}"
    logging.getLogger("hlo_dispatch").error("%s, but hlo-dispatch is not installed: %s", setting, problem)
