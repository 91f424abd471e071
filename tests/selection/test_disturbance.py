"""Disturbance detection on a simulated clock: only undisturbed samples count."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from hlo_dispatch.autotune.compare import timing
from hlo_dispatch.autotune.compare.disturbance import DisturbanceMeter, ProbeHistory
from hlo_dispatch.autotune.compare.timing import Time, interleaved
from hlo_dispatch.process.scheduling_delay import OtherWork
from hlo_dispatch.selection.measurements import Pairs

PROBE = 50e-6


@dataclass
class PlayedMachine:
    """Two processors, and what else runs on them."""

    now: float = 0.0
    waited: float = 0.0
    busy: float = 0.0
    stolen: float = 0.0
    is_shared: bool = False
    """Whether the two processors are threads of one core now."""
    before: Callable[[PlayedMachine], None] = lambda machine: None
    """Happens before each call."""
    random: random.Random = field(default_factory=lambda: random.Random(11))
    histories: dict[int, ProbeHistory] = field(default_factory=dict[int, ProbeHistory])

    def call(self, seconds: float, *, shared: float = 1.0, own_wait: float = 0.0) -> Callable[[], None]:
        """A candidate that takes so long, `shared` times longer on one core, and whose threads wait in each call."""

        def run() -> None:
            self.before(self)
            pace = shared if self.is_shared else 1.0
            self.now += seconds * pace * self.random.uniform(1.0, 1.02)
            self.waited += own_wait

        return run

    def wait(self, seconds: float) -> None:
        """Somebody else has the processors."""
        self.now += seconds
        self.waited += seconds
        self.busy += 2 * seconds

    def meter(self) -> DisturbanceMeter:
        def probe() -> float:
            self.now += PROBE
            return PROBE * (2 if self.is_shared else 1)

        return DisturbanceMeter(
            self,
            lambda: OtherWork(self.busy, self.stolen),
            probe,
            lambda: self.now,
            threads=2,
            histories=self.histories,
        )

    # What the meter asks of RunDelay.

    def seconds(self) -> float:
        return self.waited

    def forget_idle_threads(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> PlayedMachine:
    played = PlayedMachine()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: played.now)
    return played


def timed(machine: PlayedMachine, *candidates: Callable[[], None], seconds: float = 0.12) -> list[Time]:
    return interleaved(candidates, seconds=seconds, meter=machine.meter())


def bursts(often: float, longest: float) -> Callable[[PlayedMachine], None]:
    def happen(machine: PlayedMachine) -> None:
        if machine.random.random() < often:
            machine.wait(machine.random.uniform(0.1, 1.0) * longest)

    return happen


def slices(own: float, others: float) -> Callable[[PlayedMachine], None]:
    """Other work always waits: it runs for so long whenever our time slice is over."""
    begun = 0.0

    def happen(machine: PlayedMachine) -> None:
        nonlocal begun
        if machine.now - begun > own:
            machine.wait(others)
            begun = machine.now

    return happen


@pytest.mark.parametrize("gain", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("seconds", [0.1e-3, 0.3e-3, 0.9e-3])
def test_beside_busy_loops_the_verdict_is_a_quiet_machines(machine: PlayedMachine, seconds: float, gain: float) -> None:
    """A turn of all candidates lasts longer than a time slice, a sample does not."""
    machine.before = slices(3e-3, 6e-3)
    stock, own = timed(machine, machine.call(gain * seconds), machine.call(seconds))
    assert not own.is_disturbed
    assert own.wins(0.02 * stock.seconds)
    assert own.gain == pytest.approx((gain - 1) * seconds, rel=0.1)


def test_calls_that_are_longer_than_a_time_slice_have_no_lasting_answer(machine: PlayedMachine) -> None:
    """They wait in each call, which is not their own doing: the other one is as fast."""
    machine.before = slices(3e-3, 6e-3)
    _, own = timed(machine, machine.call(2.9e-3), machine.call(3.2e-3))
    assert own.is_disturbed


def test_what_stays_open_beside_other_work_is_no_lasting_answer(machine: PlayedMachine) -> None:
    """Samples that waited for nobody scatter there, too: caches are shared."""
    busy, noisy = slices(3e-3, 6e-3), random.Random(5)

    def unsteady(machine: PlayedMachine) -> None:
        busy(machine)
        machine.now += 0.5e-3 * abs(noisy.gauss(0, 2))

    machine.before = unsteady
    _, own = timed(machine, machine.call(0.6e-3), machine.call(0.5e-3))
    assert own.may_win(0.6e-3, 0.0)
    assert own.is_disturbed
    machine.before = lambda machine: setattr(machine, "now", machine.now + 0.5e-3 * abs(noisy.gauss(0, 2)))
    _, own = timed(machine, machine.call(0.6e-3), machine.call(0.5e-3))
    assert not own.is_disturbed, "on a quiet machine noise is the programs' own"


def test_beside_busy_loops_nothing_is_gained_by_chance(machine: PlayedMachine) -> None:
    machine.before = slices(3e-3, 6e-3)
    for _ in range(20):
        stock, own = timed(machine, machine.call(1e-3), machine.call(1e-3))
        assert not own.wins(0.02 * stock.seconds)


def test_the_least_time_is_a_samples(machine: PlayedMachine) -> None:
    """Stock is disturbed in each call; two of three samples of a turn of the kernel may be, too."""
    machine.before = slices(3e-3, 6e-3)
    _, own = timed(machine, machine.call(4e-3), machine.call(2e-3))
    assert own.is_disturbed
    assert own.least == pytest.approx(2e-3, rel=0.02)


@pytest.mark.parametrize("often", [0.0, 0.02, 0.05, 0.1])
def test_the_verdict_is_a_quiet_machines(machine: PlayedMachine, often: float) -> None:
    machine.before = bursts(often, 10e-3)
    stock, own = timed(machine, machine.call(1.5e-3), machine.call(1e-3))
    assert not own.is_disturbed
    assert own.wins(0.02 * stock.seconds)
    assert own.gain == pytest.approx(0.5e-3, rel=0.1)
    assert stock.seconds == pytest.approx(1.5e-3, rel=0.05)


def test_turns_of_a_slow_half_do_not_count(machine: PlayedMachine) -> None:
    """Other work begins in the middle, and slows the kernel's threads most."""
    meter = machine.meter()
    calls = 0

    def own() -> None:
        nonlocal calls
        calls += 1
        if calls > 40:
            machine.wait(machine.random.uniform(1e-3, 5e-3))
        machine.now += 1e-3 * machine.random.uniform(0.7, 1.3)

    _, time = interleaved([machine.call(1.1e-3), own], seconds=0.5, meter=meter)
    assert time.is_disturbed, "what they leave open a quiet machine might show"
    assert len(time.gains) <= 12
    assert time.gain > 0


def test_whoever_is_always_disturbed_has_no_lasting_answer(machine: PlayedMachine) -> None:
    machine.before = bursts(1.0, 10e-3)
    _, own = timed(machine, machine.call(1.2e-3), machine.call(1e-3))
    assert own.is_disturbed
    assert own.is_doubtful(1.2e-3)


def test_threads_that_wait_in_every_call_belong_to_the_kernel(machine: PlayedMachine) -> None:
    """It is slow on a quiet machine, too, and that is an answer."""
    machine.before = bursts(0.02, 5e-3)
    stock, own = timed(machine, machine.call(1e-3), machine.call(2e-3, own_wait=1e-3))
    assert not own.is_disturbed
    assert not own.may_win(stock.seconds, 0.0)


def test_threads_wait_for_each_other_where_nobody_else_is(machine: PlayedMachine) -> None:
    def own() -> None:
        machine.now += 1e-3
        machine.waited += machine.random.uniform(0.0, 2e-3)

    _, time = timed(machine, machine.call(1.05e-3), own, seconds=1.0)
    assert not time.is_disturbed


def test_what_the_host_takes_is_nobodys(machine: PlayedMachine) -> None:
    def steal(machine: PlayedMachine) -> None:
        if machine.random.random() < 0.05:
            machine.now += 10e-3
            machine.stolen += 10e-3
            machine.busy += 10e-3

    machine.before = steal
    stock, own = timed(machine, machine.call(1.5e-3), machine.call(1e-3), seconds=0.3)
    assert not own.is_disturbed
    assert stock.seconds == pytest.approx(1.5e-3, rel=0.05)


def test_a_tick_in_a_long_turn_changes_nothing(machine: PlayedMachine) -> None:
    """The host takes a hundredth of the time, in ticks of the system's clock: 10 ms in each second."""

    def steal(machine: PlayedMachine) -> None:
        while machine.now > machine.stolen * 50:
            machine.now += 10e-3
            machine.stolen += 10e-3
            machine.busy += 10e-3

    machine.before = steal
    stock, own = timed(machine, machine.call(0.45), machine.call(0.3), seconds=3.0)
    assert not own.is_disturbed
    assert stock.seconds == pytest.approx(0.45, rel=0.06)


def phases(length: float) -> Callable[[PlayedMachine], None]:
    def happen(machine: PlayedMachine) -> None:
        machine.is_shared = machine.now % (2 * length) > length

    return happen


def test_only_turns_on_two_cores_count(machine: PlayedMachine) -> None:
    """The kernel, which is at the units' peak, takes 1.8 times as long on two threads of one core; stock does not."""
    machine.before = phases(0.05)
    stock, own = timed(machine, machine.call(1.4e-3, shared=1.05), machine.call(1e-3, shared=1.8))
    assert not own.is_disturbed
    assert own.wins(0.02 * stock.seconds)
    assert own.seconds == pytest.approx(1e-3, rel=0.05)


@pytest.mark.parametrize("often", [0.5, 0.8])
def test_phases_that_are_shorter_than_a_turn_are_in_each_turn(machine: PlayedMachine, often: float) -> None:
    """Another virtual machine uses the same cores for a millisecond now and then: nothing sees both of them idle."""

    def flicker(machine: PlayedMachine) -> None:
        machine.is_shared = machine.random.random() < often

    def call(seconds: float, shared: float) -> Callable[[], None]:
        one = machine.call(seconds / 50, shared=shared)

        def run() -> None:
            for _ in range(50):
                one()

        return run

    timed(machine, machine.call(1.1e-3), machine.call(1e-3))
    machine.before = flicker
    for _ in range(2):
        timed(machine, call(0.4, 1.05), call(0.15, 1.8), seconds=1.0)
    stock, own = timed(machine, call(0.4, 1.05), call(0.15, 1.8), seconds=1.0)
    assert not own.is_disturbed
    assert own.wins(0.02 * stock.seconds)
    stock, own = timed(machine, call(0.4, 1.05), call(0.35, 1.8), seconds=1.0)
    assert not own.is_disturbed
    assert not own.wins(0.02 * stock.seconds)


def test_who_was_on_two_cores_once_does_not_believe_one(machine: PlayedMachine) -> None:
    timed(machine, machine.call(1.4e-3), machine.call(1e-3))
    machine.is_shared = True
    _, own = timed(machine, machine.call(1.4e-3, shared=1.05), machine.call(1e-3, shared=1.8))
    assert own.is_disturbed


def test_a_machine_of_one_core_is_as_it_is(machine: PlayedMachine) -> None:
    machine.is_shared = True
    _, own = timed(machine, machine.call(1.4e-3, shared=1.05), machine.call(1e-3, shared=1.2))
    assert not own.is_disturbed


def test_a_large_win_is_beyond_doubt_however_busy_the_machine(machine: PlayedMachine) -> None:
    machine.before = bursts(0.3, 4e-3)
    stock, own = timed(machine, machine.call(9e-3), machine.call(1e-3), seconds=0.3)
    assert not own.is_doubtful(stock.seconds)


def test_another_trial_goes_on_with_the_undisturbed_samples(machine: PlayedMachine) -> None:
    """Other work begins in the third turn of each."""

    def trial(*before: Pairs) -> Time:
        calls = iter(range(1000))
        machine.before = lambda machine: machine.wait(20e-3) if next(calls) >= 2 * (2 + 2) else None
        candidates = [machine.call(16e-3), machine.call(12e-3)]
        return interleaved(candidates, seconds=0.2, meter=machine.meter(), before=before)[1]

    first = trial()
    assert first.is_disturbed
    assert len(first.pairs) == 2
    second = trial(first.pairs)
    assert not second.is_disturbed
    assert second.wins(0.1 * 16e-3)
    assert second.pairs[:2] == first.pairs
