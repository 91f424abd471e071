"""Native extension module, imported at the first use: importing the package loads nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

from hlo_dispatch.errors import LibraryError


@cache
def native() -> Any:
    """The module `hlo_dispatch._kernels`; its functions have docstrings.

    Raises:
        LibraryError: it cannot be imported.
    """
    try:
        from hlo_dispatch import _kernels
    except ImportError as error:
        raise LibraryError(f"the native part of hlo-dispatch cannot be imported ({error}); install it again") from error
    return _kernels
