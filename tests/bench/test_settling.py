"""`bench.settling`: two processes measure a program, and what a process did wrong is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_dispatch.bench.settling import PRINTED, Settling, decoder, settled

pytestmark = pytest.mark.any_python

ROW = Settling(
    "x", 3, compile=7.0, stock_compile=1.0, printed=5.0, measuring=5.0, new=0, repeated=0, open=0, calls=1, stock=1e-3,
    speed=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("row", "problems"),
    [
        (ROW, []),
        (replace(ROW, compile=9.1), ["late"]),
        (replace(ROW, speed=0.97), ["slower"]),
        (replace(ROW, speed=0.97, calls=0), []),
        (replace(ROW, new=1), ["not settled"]),
        (replace(ROW, process=2, new=1, repeated=1), []),
        (replace(ROW, repeated=1), ["not settled"]),
    ],
)
def test_problems(row: Settling, problems: list[str]) -> None:
    assert row.problems(settled=2.0) == problems
    assert row.line(problems).endswith(", ".join(problems))


def test_the_printed_budget() -> None:
    said = "hlo-dispatch: measuring 12 regions of jit_f, at most 5 s; HLO_DISPATCH_PROGRESS=0 silences this\n"
    assert PRINTED.findall(f"{said}…\n{said}") == ["5", "5"]


def test_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "30")
    first, second = settled("two-layers", 2, seconds=0.1)
    assert first.new > 0
    assert (first.repeated, first.process, second.process) == (0, 1, 2)
    # What a busy machine left open, and the program's trial with it.
    assert second.new + second.repeated <= first.open + 1
    assert first.speed > 0


def test_a_decoder() -> None:
    program = decoder("tiny", "unrolled", "float32")
    assert program.name == "decoder-tiny-unrolled"
    assert len(program.weights) == 1
