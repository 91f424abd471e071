"""Kernel support queries: prefetched ones have the same answers as direct ones."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from calls import matmul_call, random_values, tensor

from hlo_dispatch import _kernels
from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

TARGET = registry.kernels()["onednn.matmul"].target


@pytest.fixture(autouse=True)
def _library() -> None:
    kernels.warm_up()


def spec(rows: int, **changes) -> dict:
    """A product of `rows` rows. Sizes that no other test asks for: answers are kept."""
    random = np.random.default_rng(0)
    call = matmul_call(tensor(random_values(random, (rows, 37))), tensor(random_values(random, (37, 41))))
    return call.spec | changes


def test_an_answer_is_that_of_a_plan() -> None:
    number = _kernels.ask(TARGET, spec(101))
    assert _kernels.wait(number) == _kernels.plan(TARGET, spec(101))


def test_answers_come_in_any_order() -> None:
    numbers = {rows: _kernels.ask(TARGET, spec(rows)) for rows in range(110, 130)}
    for rows in reversed(numbers):
        assert _kernels.wait(numbers[rows]) == _kernels.plan(TARGET, spec(rows))


def test_each_number_serves_once() -> None:
    number = _kernels.ask(TARGET, spec(131))
    _kernels.wait(number)
    for unknown in (number, 10**9, -3):
        with pytest.raises(ValueError, match="there is no question"):
            _kernels.wait(unknown)


def test_errors_of_prefetched_queries_are_raised_by_the_wait() -> None:
    number = _kernels.ask(TARGET, spec(132, src_dims=[132]))
    with pytest.raises(ValueError, match="src"):
        _kernels.wait(number)


def test_the_plan_takes_the_answer_that_was_asked_ahead(monkeypatch) -> None:
    kernels.prefetch("onednn.matmul", spec(133))
    kernels.prefetch("onednn.matmul", spec(133))
    monkeypatch.setattr(_kernels, "plan", None)
    planned = kernels.plan("onednn.matmul", spec(133))
    assert not isinstance(planned, Refusal)
    assert planned == kernels.plan("onednn.matmul", spec(133))


def test_many_threads_ask_and_wait() -> None:
    wrong: list[int] = []

    def asks(first: int) -> None:
        numbers = [(rows, _kernels.ask(TARGET, spec(rows))) for rows in range(first, first + 8)]
        wrong.extend(rows for rows, number in numbers if _kernels.wait(number) != _kernels.plan(TARGET, spec(rows)))

    threads = [threading.Thread(target=asks, args=(200 + 8 * number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_process_ends_with_questions_open() -> None:
    program = """
from hlo_dispatch.vendor import kernels, registry
kernels.warm_up()
square = {"dims": [64, 64], "strides": [64, 1]}
for rows in range(300):
    spec = {"abi": registry.abi(), "library": "", "scratch": 0}
    for role in ("src", "weights", "dst"):
        spec |= {f"{role}_type": "f32", f"{role}_dims": [64 + rows] * 2, f"{role}_strides": [64 + rows, 1]}
    kernels.prefetch("onednn.matmul", spec)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
