"""Forgotten donation: jaxlib 0.10.2 drops the aliases of a module that its hook returns.

The arguments stay the caller's then. XLA's copy insertion, which has run before the hook, lets loops and updates change
donated parameters where they lie; a copy takes their place.
"""

from __future__ import annotations

import jax

from hlo_dispatch.analysis.overwritten_parameters import keep_inputs
from hlo_dispatch.ir.module import Module

IS_DONATION_KEPT = jax.__version_info__ >= (0, 11)
"""Whether arguments are donated to a module that the hook returns."""


def with_inputs_kept(module: Module) -> Module:
    """The module, or where this jaxlib forgets what is donated to it, a copy that overwrites no argument."""
    proto = module.proto
    if IS_DONATION_KEPT or not (proto.input_output_alias.entries or proto.buffer_donor.entries):
        return module
    module = module.copy()
    keep_inputs(module)
    return module
