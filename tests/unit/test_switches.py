"""Variables that are on or off: every usual word, and a sentence for every other."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import PolicyError
from hlo_dispatch.process.environment_switches import STRICT_VARIABLE, check_switches, is_strict, switch

VARIABLE = "HLO_DISPATCH_SOMETHING"


def asked() -> bool | None:
    return switch(VARIABLE, PolicyError, zero="no", one="yes")


@pytest.mark.parametrize(
    ("words", "means"),
    [(("1", "true", "TRUE", "yes", "On", " on "), True), (("0", "false", "FALSE", "no", "off"), False), (("",), None)],
)
def test_words(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], means: bool | None) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert asked() is None
    for word in words:
        monkeypatch.setenv(VARIABLE, word)
        assert asked() is means


@pytest.mark.parametrize("word", ["2", "maybe", "-1", "truee"])
def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv(VARIABLE, word)
    with pytest.raises(PolicyError, match=f"{VARIABLE} is '{word}'; set it to 0"):
        asked()


def test_strict_never_raises_and_installing_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked where something has failed already, inside XLA's compiler."""
    monkeypatch.setenv(STRICT_VARIABLE, "maybe")
    assert not is_strict()
    with pytest.raises(PolicyError, match="maybe"):
        check_switches(PolicyError)
    monkeypatch.setenv(STRICT_VARIABLE, "true")
    assert is_strict()
    check_switches(PolicyError)
