"""HLO text parsing and printing: a parse error is one ModuleError of one line."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module

GOOD = "HloModule good\nENTRY main { ROOT x = f32[2]{0} parameter(0) }\n"


@pytest.mark.parametrize(
    "text",
    ["", "HloModule m", "nonsense", "HloModule m\nENTRY main {\n  ROOT a = f32[2]{0}\n    unheard-of()\n}\n"],
    ids=["empty", "header alone", "nonsense", "opcode"],
)
def test_bad_text(text: str) -> None:
    with pytest.raises(ModuleError) as caught:
        hlo_text.from_text(text)
    message = str(caught.value)
    assert message.startswith("this HLO text does not parse: ")
    assert "\n" not in message
    assert caught.value.__cause__ is None


def test_bad_text_says_where() -> None:
    with pytest.raises(ModuleError, match=r"2:\d+: error: expects opcode but sees: unheard-of"):
        hlo_text.from_text("HloModule m\nENTRY main { ROOT a = f32[2]{0} unheard-of() }")


def bad_bytes() -> list[bytes]:
    return [b"", b"nonsense", b"\xff\xff", hlo_text.from_text(GOOD)[:40]]


@pytest.mark.parametrize("number", range(4), ids=["empty", "text", "no wire", "cut short"])
def test_bad_bytes_to_text(number: int) -> None:
    with pytest.raises(ModuleError) as caught:
        hlo_text.to_text(bad_bytes()[number])
    assert str(caught.value).startswith("XLA does not accept this module: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", range(4), ids=["empty", "text", "no wire", "cut short"])
def test_bad_bytes_to_module(number: int) -> None:
    with pytest.raises(ModuleError) as caught:
        Module.from_bytes(bad_bytes()[number])
    assert str(caught.value).startswith("this is not a serialized HloModuleProto")
    assert "\n" not in str(caught.value)


def test_good_text_returns() -> None:
    returned = hlo_text.to_text(hlo_text.from_text(GOOD))
    assert returned.startswith("HloModule good")
    assert "ROOT %x = f32[2]{0} parameter(0)" in returned
