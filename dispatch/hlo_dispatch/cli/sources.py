"""Input modules of the command line: optimized HLO as it is, anything else through XLA's pipeline first."""

from __future__ import annotations

from pathlib import Path

from hlo_dispatch.ir import module_files
from hlo_dispatch.ir.language import is_hlo, is_stablehlo

_STABLEHLO_SUFFIXES = (".mlir", ".mlirbc")


def optimized_source(path: str, *, optimize: bool = False) -> bytes | str:
    """The module in `path` (`-`: standard input) as the pass takes it.

    Args:
        optimize: have XLA optimize HLO, too. StableHLO always is.

    Raises:
        ModuleError: the file is empty, or what is in it does not compile; the message begins with `path`.
        OSError: it cannot be read.
    """
    program = module_files.read_module(path)
    with module_files.named(path):
        if is_stablehlo(program) or (Path(path).suffix in _STABLEHLO_SUFFIXES and not is_hlo(program)):
            from hlo_dispatch.jax_plugin.optimizing import optimize_stablehlo

            return optimize_stablehlo(program)
        if optimize:
            from hlo_dispatch.jax_plugin.optimizing import optimize as optimized

            return optimized(program)
    return program
