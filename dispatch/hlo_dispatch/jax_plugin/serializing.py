"""Ahead-of-time compilation: serializes XLA's executable of a rewritten module, for processes that only load it."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hlo_dispatch.autotune.run import executable
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.entry_layouts import refuse_entry_layouts
from hlo_dispatch.ir.inline import inline_calls
from hlo_dispatch.ir.text import first_lines, parsed
from hlo_dispatch.vendor.registration import register_kernels

_CALLBACK = "callback"


def serialized_executable(serialized: bytes, tables: Sequence[str | Path] | None = None) -> bytes:
    """Compile an optimized module with this jaxlib's XLA:CPU to a serialized executable, for machines like this one.

    Args:
        serialized: an HloModuleProto, rewritten or not.
        tables: pattern tables of your own, where the module calls kernels of your own; None: those that
            HLO_DISPATCH_TABLES names.

    Raises:
        ModuleError: it is not optimized, its entry layouts are not row-major, it calls back into Python, or XLA does
            not compile it.
        TableError: a table is wrong.
    """
    module = parsed(serialized)
    if inline_calls(module.copy()):
        raise ModuleError("XLA has not optimized this module yet, and code is made of one that it has: add --optimize")
    refuse_entry_layouts(module)
    for target in module.custom_call_targets:
        if _CALLBACK in target:
            raise ModuleError(
                f"this program calls back into the Python that wrote it ({target}): no executable of it runs elsewhere"
            )
    executable.start()
    register_kernels(tables)
    try:
        return executable.Executable(module).serialize()
    except KeyError as error:
        raise ModuleError(f"no executable is made of a program that takes or returns {error.args[0]}") from None
    except Exception as error:  # jaxlib's exception of an XLA status
        raise ModuleError(f"XLA does not compile this module: {first_lines(error)}") from None
