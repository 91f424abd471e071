"""The door that needs no code: JAX imports this through its `jax_plugins` entry point.

`HLO_DISPATCH=1` installs the pass; `HLO_DISPATCH_TABLES` (paths joined by the system's path separator) and
`HLO_DISPATCH_POLICY` set what `install()` would be given. Without `HLO_DISPATCH=1` nothing happens.
"""

from __future__ import annotations

import logging
import os

from hlo_dispatch.errors import HloDispatchError


def initialize() -> None:
    """Called by JAX while it discovers its plug-ins, before a backend exists."""
    if os.environ.get("HLO_DISPATCH") != "1":
        return
    from hlo_dispatch import plugin

    try:
        plugin.install_when_ready(
            tables=[path for path in os.environ.get("HLO_DISPATCH_TABLES", "").split(os.pathsep) if path],
            policy=os.environ.get("HLO_DISPATCH_POLICY", "heuristic"),
        )
    except HloDispatchError as error:
        # JAX would print a traceback of its own and go on; the user needs the sentence.
        logging.getLogger("hlo_dispatch").warning("HLO_DISPATCH=1 has no effect, this is stock XLA: %s", error)
