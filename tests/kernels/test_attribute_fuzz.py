"""No attribute ends the process: each of many calls, changed at random, is an XLA error or has the right result.

Each runs in a child process. `pytest tests/kernels/test_attribute_fuzz.py --hypothesis-profile=hunt` runs thousands; a
call that failed is printed as the line that `python tests/kernels/call_worker.py` reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from mutations import changed_calls
from wire_calls import WireCall, valid_calls
from worker_pool import Worker

from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.vendor import registry
from processor import HAS_AVX512, lacks, lacks_onemkl

CASES = 24 * settings().max_examples
_outcomes: Counter[str] = Counter()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as running:
        yield running
    print(f"{running.calls} calls: {dict(_outcomes)}")


def check(worker: Worker, call: WireCall) -> None:
    outcome = worker.run(call)
    (kind, *_) = outcome
    _outcomes[kind] += 1
    assert kind in ("error", "right"), f"{call.name}, {call.says}: {outcome}\n{worker.line(call)}"
    if kind == "error":
        assert outcome["error"].split(": ", 1)[1].strip(), outcome


def beyond_this_processor(call: WireCall) -> bool:
    if registry.kernels()[call.name].instructions == "AVX-512" and not HAS_AVX512:
        return True
    if call.name == "own.pack" and "avx512_vnni" not in this_machine().features:
        return True
    # Our own code widens what the processor cannot multiply.
    is_onednn = registry.kernels()[call.name].library == "oneDNN"
    values = [*call.operands, *call.results]
    return is_onednn and any(value.type == "bf16" for value in values) and bool(lacks("bf16"))


def test_valid_calls_of_every_target_are_right(worker: Worker) -> None:
    calls = valid_calls()
    missing = {"oneMKL"} if lacks_onemkl() else set[str]()
    assert {call.name for call in calls} == {k.name for k in registry.kernels().values() if k.library not in missing}
    for call in calls:
        outcome = worker.run(call)
        if beyond_this_processor(call):
            assert set(outcome) == {"error"}, (outcome, worker.line(call))
            assert outcome["error"].startswith("UNIMPLEMENTED: "), outcome
        else:
            assert outcome == {"right": True}, (outcome, worker.line(call))
    assert worker.targets == sorted(f"hlo_dispatch.{name}" for name in registry.kernels())


@settings(max_examples=CASES)
@given(call=changed_calls())
def test_changed_calls_are_errors_or_right(worker: Worker, call: WireCall) -> None:
    check(worker, call)


def test_many_changed_calls_still_ran() -> None:
    """Were all of them refused, nothing but refusals would have been tried."""
    assert _outcomes["right"] > _outcomes.total() / 20, _outcomes
    assert _outcomes["error"] > _outcomes.total() / 20, _outcomes
