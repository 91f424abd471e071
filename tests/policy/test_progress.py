"""The line that a person who waits may read: on a terminal only, and only where it takes a while."""

from __future__ import annotations

import io

import pytest

from hlo_dispatch.policy import progress
from hlo_dispatch.policy.progress import Line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "patience", "says"), [
    (Terminal(), 0.0, True), (Terminal(), 100.0, False), (io.StringIO(), 0.0, False)
])  # fmt: skip
def test_who_sees_it(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float, says: bool) -> None:
    monkeypatch.setattr(progress.sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", patience)
    line = Line()
    line("relu(x @ w)", 0, 7, 4.2)
    line("tanh(x @ w)", 1, 7, float("inf"))
    line("the whole program", 0, 0, 2.0)
    line("", 7, 7, 0.0)
    shown = stream.getvalue()
    assert ("measuring region 1 of 7, once on this machine; at most 4 s more" in shown) == says
    assert ("measuring region 2 of 7, once on this machine\r" in shown) == says
    assert ("measuring the whole program, once" in shown) == says
    assert shown.endswith("\r\x1b[2K") == says
