"""What a whole-program trial chooses costs 2 % at most, on a simulated clock with noise and slow phases."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.whole_program_trial import MOST_REGRET
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text
from hlo_dispatch.selection.measurements import STOCK, Pairs

MODULE = Module.from_bytes(from_text("HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0) }"))
STOCK_SECONDS = 4e-3


class Programs:
    """Stands for TrialPrograms: each program takes its seconds on a clock of its own, more or less."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int, noise: float, **variants: float) -> None:
        """`variants`: name → time, as a fraction of stock's."""
        self.now, self._slow, self._noise, self._random = 0.0, 0.0, noise, random.Random(seed)
        self._times = variants
        self.programs: list[Callable[[], None]] = [self._worker(1.0)]
        self.names: list[str] = []
        self.keys = self.names
        self.trips = None
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(whole_program_trial, "TrialPrograms", lambda *_: self)

    def _worker(self, factor: float) -> Callable[[], None]:
        def work() -> None:
            if self.now > self._slow and self._random.random() < 0.01:
                self._slow = self.now + self._random.uniform(0.02, 0.2)
            pace = 1.5 if self.now < self._slow else 1.0
            self.now += STOCK_SECONDS * factor * pace * (1 + self._noise * abs(self._random.gauss(0, 1)))

        return work

    def add(self, name: str, _: Module) -> None:
        self.programs.append(self._worker(self._times[name]))
        self.names.append(name)

    def seconds_of_one_more(self) -> float:
        return 0.0

    def has_time_for_one_more(self) -> bool:
        return True

    def program(self, name: str) -> Callable[[], None]:
        return self.programs[1 + self.names.index(name)]

    def loses_by_iterations(self, *_: object, **__: object) -> bool:
        return False

    def regret(self) -> float:
        """What the choice costs, as a fraction of the fastest program's time."""
        chosen = whole_program_trial.compare(MODULE, dict.fromkeys(self._times, MODULE)).chosen
        times = {STOCK: 1.0, **self._times}
        return times[chosen] / min(times.values()) - 1


@pytest.mark.parametrize("noise", [0.02, 0.1])
@pytest.mark.parametrize(
    "variants",
    [
        {"together": 0.965},
        {"together": 1.035},
        {"together": 0.99, "everything": 0.96},
        {"together": 0.96, "everything": 0.925},
        {"together": 0.96, "everything": 1.04, "apart": 0.96},
        {"together": 0.7, "everything": 0.73, "apart": 0.675},
        {"together": 1.0, "everything": 1.0},
    ],
    ids=str,
)
def test_the_choice_costs_little(monkeypatch: pytest.MonkeyPatch, variants: dict[str, float], noise: float) -> None:
    regrets = [Programs(monkeypatch, seed, noise, **variants).regret() for seed in range(5)]
    assert max(regrets) <= MOST_REGRET + 1e-9, regrets


def test_equal_programs_take_the_time_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(monkeypatch, 1, 0.02, together=1.0)
    assert programs.regret() == 0
    assert programs.now < whole_program_trial.SECONDS


def test_a_disturbed_trial_goes_on_with_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = ((4e-3, 3.9e-3),) * 3
    given: list[list[Pairs]] = []

    def disturbed(*_: object, before: list[Pairs], **__: object) -> list[Time]:
        given.append(before)
        return [Time(4e-3, 0.0, 0.0), Time(3.9e-3, 0.1e-3, 1e-3, is_disturbed=True, pairs=pairs)]

    Programs(monkeypatch, 1, 0.02, together=1.0)
    monkeypatch.setattr(whole_program_trial, "interleaved", disturbed)
    first = whole_program_trial.compare(MODULE, {"together": MODULE})
    assert first.provisional
    assert first.samples == {"together": pairs}
    Programs(monkeypatch, 1, 0.02, together=1.0)
    whole_program_trial.compare(MODULE, {"together": MODULE}, before=first.samples)
    assert given == [[()], [pairs]]
