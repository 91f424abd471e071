"""Whole models frozen without asking, beside `freeze`."""

from __future__ import annotations

import sys

import pytest

from hlo_dispatch.bench.automatic import models

pytestmark = pytest.mark.any_python


@pytest.mark.parametrize(
    ("automatic", "frozen", "speeds", "is_fast"),
    [
        ([2.0, 3.0, 4.0], [2.0, 3.0, 4.0], ["1.000", "1.000"], True),
        ([2.0, 4.0, 5.0], [2.0, 3.0, 4.0], ["1.000", "0.750"], True),
        ([2.5, 4.0, 5.0], [2.0, 3.0, 4.0], ["0.800", "0.750"], False),
    ],
)
def test_lines(automatic: list[float], frozen: list[float], speeds: list[str], is_fast: bool) -> None:
    text, said = models.line("bert", "f32", {"ours-auto": automatic, "ours-frozen": frozen})
    assert text.split()[-3:] == [*speeds, "3"]
    assert said is is_fast


def test_a_tiny_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(sys, "argv", ["models", "bert", "--dtype", "f32", "--seconds", "0.1", "--small"])
    with pytest.raises(SystemExit):  # so small a model says nothing of speeds
        models.main()
    *_, row = capsys.readouterr().out.splitlines()
    model, dtype, *times = row.removesuffix("  !").split()
    assert (model, dtype) == ("bert", "f32")
    assert all(float(time) > 0 for time in times)
    assert len(times) == 7, "it was frozen"
