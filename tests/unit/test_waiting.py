"""Run delay, stolen time and other processes' time, read from files as Linux writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hlo_dispatch.process import scheduling_delay
from hlo_dispatch.process.scheduling_delay import RunDelay, other_work

pytestmark = pytest.mark.any_processor


def write(tasks: Path, thread: int, ran: int, waited: int) -> None:
    (tasks / str(thread)).mkdir(parents=True, exist_ok=True)
    (tasks / str(thread) / "schedstat").write_text(f"{ran} {waited} 17\n")


def test_threads_that_run_are_counted(tmp_path: Path) -> None:
    for thread in (1, 2, 3):
        write(tmp_path, thread, 1000, 500)
    delay = RunDelay(tmp_path)
    assert delay.seconds() == pytest.approx(1500e-9)
    write(tmp_path, 1, 2000, 1_000_500)
    delay.forget_idle_threads()
    write(tmp_path, 2, 3000, 9_000_000)
    assert delay.seconds() == pytest.approx(1_000_500e-9)
    delay.close()
    assert delay.seconds() == 0.0


def test_without_that_file_forced_switches_are_counted(tmp_path: Path) -> None:
    delay = RunDelay(tmp_path / "missing")
    assert delay.seconds() >= 0.0
    delay.forget_idle_threads()
    delay.close()


def test_a_thread_of_this_process_is_read() -> None:
    delay = RunDelay()
    assert delay.seconds() >= 0.0
    delay.close()


def test_other_processes_time_is_what_this_one_had_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_delay.os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(time, "process_time", lambda: 0.5)
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 900 0 0 0 0 0 0 90 0 0\ncpu1 100 20 30 999 50 1 2 40 0 0\nintr 1 2 3\n"
    )
    tick = 1 / os.sysconf("SC_CLK_TCK")
    found = other_work(stat)
    assert found is not None
    assert found.stolen == pytest.approx(40 * tick)
    assert found.busy == pytest.approx(193 * tick - 0.5)


@pytest.mark.parametrize("text", ["", "cpu1 1 2\n", "cpu1 a b c d e f g h\n"])
def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(scheduling_delay.os, "sched_getaffinity", lambda _: {1})
    stat = tmp_path / "stat"
    stat.write_text(text)
    assert other_work(stat) is None
    assert other_work(tmp_path / "missing") is None
