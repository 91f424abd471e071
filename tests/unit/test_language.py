"""Program language detection by the first word."""

from __future__ import annotations

import pytest

from hlo_dispatch.ir.language import is_hlo, is_stablehlo

STABLEHLO = (
    "module {}",
    "module @name attributes {} {}",
    "\n// a comment\n  func.func @main() { return }",
    "/* one */ // two\nmodule{}",
    '"builtin.module"() ({}) : () -> ()',
    "builtin.module {}",
    "#loc = loc(unknown)\nmodule {}",
    "!alias = tensor<4xf32>\nmodule {}",
    b"ML\xefR\rStableHLO_v1.0.0\x00",
)
HLO = ("HloModule module", "// module {}\nHloModule m\nENTRY e { ROOT a = f32[] parameter(0) }", "\n/* x */HloModule m")
NEITHER = ("", "module_of_mine", "module.1 {", "words", b"", b"\x0a\x06module", "ENTRY main {}")


@pytest.mark.parametrize("program", STABLEHLO)
def test_stablehlo_is_known(program: bytes | str) -> None:
    assert is_stablehlo(program)
    assert not is_hlo(program)


@pytest.mark.parametrize("program", HLO)
def test_hlo_is_known(program: str) -> None:
    assert is_hlo(program)
    assert not is_stablehlo(program)


@pytest.mark.parametrize("program", NEITHER)
def test_what_may_be_hlo_is_left_to_its_parser(program: bytes | str) -> None:
    assert not is_stablehlo(program)
    assert not is_hlo(program)
