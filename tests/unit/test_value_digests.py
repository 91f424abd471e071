"""Digests of values: what is equal in two programs, and what is not."""

from __future__ import annotations

import pytest

from hlo_dispatch.analysis.value_digests import ValueDigests
from hlo_dispatch.ir import text
from hlo_dispatch.ir.module import Module

pytestmark = [pytest.mark.any_python, pytest.mark.any_processor]

SQUARE = "f32[4,4]{1,0}"


def digest(result: str, body: str, parameter: str = SQUARE) -> bytes:
    """Of what the last line of a body computes from the parameter %x."""
    *lines, last = body.strip().splitlines()
    written = "\n".join([f"  %x = {parameter} parameter(0)", *lines, f"  ROOT {last.strip()}"])
    signature = f"(x: {parameter.split('{')[0]}) -> {result.split('{')[0]}"
    module = Module.from_bytes(text.from_text(f"HloModule m\n\nENTRY %e {signature} {{\n{written}\n}}\n"))
    entry = module.entry
    found = ValueDigests(module).of_values(entry.instructions[:], lambda _: b"x")
    return found[entry.root_id]


@pytest.mark.parametrize(
    ("result", "one", "other"),
    [
        # A row's scale is repeated with a dimension of one element, or without it.
        (
            "f32[1,4,4]{2,1,0}",
            """
  %row = f32[1,4]{1,0} slice(%x), slice={[1:2], [0:4]}
  %root = f32[1,4]{1,0} sqrt(%row)
  %all = f32[1,4,4]{2,1,0} broadcast(%root), dimensions={0,2}
  %y = f32[1,4,4]{2,1,0} negate(%all)""",
            """
  %row = f32[1,4]{1,0} slice(%x), slice={[1:2], [0:4]}
  %vector = f32[4]{0} bitcast(%row)
  %root = f32[4]{0} sqrt(%vector)
  %all = f32[4,4]{1,0} broadcast(%root), dimensions={1}
  %negated = f32[4,4]{1,0} negate(%all)
  %y = f32[1,4,4]{2,1,0} reshape(%negated)""",
        ),
        # Layouts of intermediate values are not in a value.
        (
            SQUARE,
            """
  %copy = f32[4,4]{0,1} copy(%x)
  %root = f32[4,4]{0,1} sqrt(%copy)
  %y = f32[4,4]{1,0} copy(%root)""",
            "  %y = f32[4,4]{1,0} sqrt(%x)",
        ),
    ],
    ids=["dimensions of one", "layouts"],
)
def test_equal(result: str, one: str, other: str) -> None:
    assert digest(result, one) == digest(result, other)


@pytest.mark.parametrize(
    ("result", "one", "other"),
    [
        # The same bytes are the transpose.
        (
            SQUARE,
            """
  %copy = f32[4,4]{0,1} copy(%x)
  %turned = f32[4,4]{1,0} bitcast(%copy)
  %y = f32[4,4]{1,0} sqrt(%turned)""",
            "  %y = f32[4,4]{1,0} sqrt(%x)",
        ),
        # A vector is repeated along another dimension.
        (
            SQUARE,
            """
  %row = f32[1,4]{1,0} slice(%x), slice={[1:2], [0:4]}
  %vector = f32[4]{0} bitcast(%row)
  %y = f32[4,4]{1,0} broadcast(%vector), dimensions={1}""",
            """
  %row = f32[1,4]{1,0} slice(%x), slice={[1:2], [0:4]}
  %vector = f32[4]{0} bitcast(%row)
  %y = f32[4,4]{1,0} broadcast(%vector), dimensions={0}""",
        ),
        (SQUARE, "  %y = f32[4,4]{1,0} sqrt(%x)", "  %y = f32[4,4]{1,0} rsqrt(%x)"),
        (
            SQUARE,
            """
  %flat = f32[16]{0} reshape(%x)
  %y = f32[4,4]{1,0} reshape(%flat)""",
            "  %y = f32[4,4]{1,0} transpose(%x), dimensions={1,0}",
        ),
    ],
    ids=["transpose", "broadcast", "opcode", "reshape"],
)
def test_different(result: str, one: str, other: str) -> None:
    assert digest(result, one) != digest(result, other)


def test_the_result_has_its_shape() -> None:
    """Programs share arrays, which have one shape."""
    flat = digest("f32[16]{0}", "  %y = f32[16]{0} reshape(%x)", "f32[16,1]{1,0}")
    square = digest("f32[16,1]{1,0}", "  %y = f32[16,1]{1,0} copy(%x)", "f32[16,1]{1,0}")
    turned = digest("f32[4,4]{0,1}", "  %y = f32[4,4]{0,1} copy(%x)")
    assert len({flat, square, turned, digest(SQUARE, "  %y = f32[4,4]{1,0} copy(%x)")}) == 4
