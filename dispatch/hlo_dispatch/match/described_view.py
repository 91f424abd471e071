"""Description of operands in a kernel call's attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo_dispatch.analysis.strided_view import View


def described(view: View) -> dict[str, Any]:
    """Type, sizes and strides of the view, and its place where it is a part of its buffer."""
    found: dict[str, Any] = {
        "type": view.element_type,
        "dims": view.sizes,
        "strides": view.strides,
    }
    elements = view.node.shape.elements
    if view.offset or elements != 1 + sum((size - 1) * stride for size, stride in view.dimensions):
        found |= {"offset": view.offset, "elements": elements}
    return found


def sizes_and_strides(views: Mapping[str, View]) -> dict[str, Any]:
    """The attributes `ROLE_dims` and `ROLE_strides` of each view, by its role."""
    return {
        f"{role}_{word}": numbers
        for role, view in views.items()
        for word, numbers in (("dims", view.sizes), ("strides", view.strides))
    }
