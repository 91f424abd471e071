"""Entry layouts: refuses arguments and results that are not row-major or of dynamic size, as StableHLO cannot say."""

from __future__ import annotations

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import row_major, shape_of


def refuse_entry_layouts(module: Module) -> None:
    """Check that a module's arguments and results are row-major and of static size.

    Raises:
        ModuleError: one is not.
    """
    signature = module.entry.program_shape
    results = signature.result.tuple_shapes[:] or [signature.result]
    for what, protos in (("argument", signature.parameters[:]), ("result", results)):
        for number, shape in enumerate(map(shape_of, protos)):
            if shape.is_dynamic:
                raise ModuleError(
                    f"{what} {number} of this module is {shape}, of a size that is known at run time only"
                )
            # Without a layout it is row-major.
            usual = row_major(shape.element_type, shape.dimensions).minor_to_major
            if shape.minor_to_major not in ((), usual):
                raise ModuleError(
                    f"{what} {number} of this module is {shape}, and only what is row-major can be compiled here: "
                    "transpose it inside of the program"
                )
