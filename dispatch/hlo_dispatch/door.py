"""The door that needs no code: JAX imports this through its `jax_plugins` entry point.

`HLO_DISPATCH=1` installs the pass; `HLO_DISPATCH_TABLES` (paths joined by the system's path separator) and
`HLO_DISPATCH_POLICY` set what `install()` would be given. Without `HLO_DISPATCH=1` nothing happens. What is
wrong with these variables is said in one line, and JAX starts without the pass.
"""

from __future__ import annotations

import logging
import os


def initialize() -> None:
    """Called by JAX while it discovers its plug-ins, before a backend exists."""
    if os.environ.get("HLO_DISPATCH") != "1":
        return
    from hlo_dispatch import plugin
    from hlo_dispatch.errors import HloDispatchError

    tables = [path for path in os.environ.get("HLO_DISPATCH_TABLES", "").split(os.pathsep) if path]
    policy = os.environ.get("HLO_DISPATCH_POLICY", "measure")
    try:
        plugin.install_when_ready(tables, policy)
    except HloDispatchError as error:
        logging.getLogger("hlo_dispatch").error("HLO_DISPATCH=1, but hlo-dispatch is not installed: %s", error)
