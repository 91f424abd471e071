"""`optimize`: runs XLA:CPU's optimization pipeline on programs of any front end, up to the compiler hook.

Nothing runs, and code generation is skipped: the hook captures the optimized module.
"""

# pyright: basic, reportPrivateImportUsage=false
# jax has no complete type hints, and exports none of what is private.
from __future__ import annotations

import itertools
import os
import re

from hlo_dispatch.autotune.run import executable
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.entry_layouts import refuse_entry_layouts
from hlo_dispatch.ir.inline import inline_calls
from hlo_dispatch.ir.language import is_stablehlo
from hlo_dispatch.ir.text import first_lines, parsed
from hlo_dispatch.jax_plugin import stablehlo

_FOREIGN = re.compile(r":(\d+):(\d+): error: '([\w.]+)' op unsupported op for export")
_numbers = itertools.count()


def optimize(program: bytes | str) -> bytes:
    """Optimize a program up to XLA:CPU's scheduler: returns the serialized HloModuleProto that `rewrite` takes.

    Args:
        program: StableHLO, as text or bytecode (a portable artifact, such as `jax.export` writes, included), or HLO
            that XLA has not optimized, as text or a serialized HloModuleProto.

    Raises:
        ModuleError: it does not parse, is not for one CPU, or XLA does not compile it; the sentence says which.
    """
    return optimize_stablehlo(program if is_stablehlo(program) else _from_hlo(program))


def optimize_stablehlo(program: bytes | str) -> bytes:
    """`optimize` for StableHLO."""
    executable.start()
    name = executable.placeholder_name(f"optimized_{os.getpid()}_{next(_numbers)}")
    bytecode, original_name = stablehlo.named(program, name)
    try:
        with executable.shown(name) as modules:
            executable.compiled(bytecode)
    except Exception as error:  # jaxlib's exception of an XLA status
        raise ModuleError(_sentence(error)) from None
    if not modules:
        raise ModuleError("XLA compiled this program without showing it: JAX's hook was cleared meanwhile")
    module = modules[-1]
    module.proto.name = original_name
    return module.to_bytes()


def _from_hlo(program: bytes | str) -> bytes:
    """Convert an unoptimized HLO module to StableHLO, with calls inlined."""
    from jax._src.lib import _jax

    module = parsed(program)
    inline_calls(module)
    refuse_entry_layouts(module)
    try:
        return _jax.mlir.hlo_to_stablehlo(module.to_bytes())
    except Exception as error:
        raise ModuleError(
            f"XLA does not take this HLO for a program that it has not optimized: {first_lines(error)}"
        ) from None


def _sentence(error: Exception) -> str:
    foreign = _FOREIGN.search(str(error))
    if foreign is not None:
        return f"line {foreign[1]}, column {foreign[2]}: {stablehlo.not_compiled(foreign[3])}"
    return f"XLA does not compile this program: {first_lines(error)}"
