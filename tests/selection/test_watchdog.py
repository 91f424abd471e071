"""Watchdog: work that does not end is given up, does not block the exit, and is not tried again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from environment import clean_environment
from hlo_dispatch.autotune.run import watchdog
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime
from hlo_dispatch.autotune.run.watchdog import TimedOut, has_stuck_threads, run_with_watchdog
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.selection.measurements import MAX_FAILED_ATTEMPTS, STOCK, Measurement

pytestmark = pytest.mark.any_processor


def test_what_ends_is_handed_on() -> None:
    assert run_with_watchdog(lambda: 7, Deadline(), 0.0) == 7
    with pytest.raises(ZeroDivisionError):
        run_with_watchdog(lambda: 1 // 0, Deadline(), 0.0)
    assert not has_stuck_threads()


def test_what_would_not_fit_is_not_begun() -> None:
    begun = []
    with pytest.raises(OutOfTime):
        run_with_watchdog(lambda: begun.append(1), Deadline(1.0), 2.0)
    assert begun == []


def test_what_does_not_end_is_left_behind() -> None:
    stopped = threading.Event()
    with pytest.raises(TimedOut, match=r"had not ended after 1\.\d s"):
        run_with_watchdog(lambda: stopped.wait(60), Deadline(0.9), 0.01)
    assert has_stuck_threads()
    stopped.set()
    while has_stuck_threads():
        time.sleep(0.01)


def test_ctrl_c_may_come_while_a_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_with_watchdog(lambda: stopped.wait(60), Deadline(), 0.01)
    assert has_stuck_threads()
    stopped.set()
    while has_stuck_threads():
        time.sleep(0.01)


def test_work_that_is_merely_slow_is_not_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "GRACE", 0.0)
    stopped = threading.Event()
    with pytest.raises(OutOfTime):
        run_with_watchdog(lambda: stopped.wait(60), Deadline(0.1), 0.01)
    stopped.set()


def test_what_never_ended_is_said_and_kept() -> None:
    given_up = Measurement(STOCK, {}, timed_out_after=3.0, formula="x @ w", failed_attempts=MAX_FAILED_ATTEMPTS)
    assert "had not ended after 3.0 s" in given_up.sentence()
    assert Measurement.from_dict(given_up.to_dict()) == given_up


# Stock's code for a region is a loop that goes on for thousands of years.
ENDLESS = """
import sys, time
import numpy as np
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text
from hlo_dispatch.autotune.compare import comparison
from hlo_dispatch.autotune.run import watchdog
watchdog.MAX_SECONDS = 3.0
real = comparison.with_context_ops

def with_context_ops(module, extracted, threads):
    if module is not extracted.module:
        return real(module, extracted, threads)
    print("begun", flush=True)
    inputs = list(map(str, extracted.inputs))
    parameters = " ".join(f"p.{n} = {kind} parameter({n})\\n" for n, kind in enumerate(inputs))
    state = f"(s64[], {inputs[0]})"
    return Module.from_bytes(from_text(f'''HloModule m
condition {{ c.s = {state} parameter(0)
  c.n = s64[] get-tuple-element(c.s), index=0
  c.last = s64[] constant(1000000000000000)
  ROOT c.less = pred[] compare(c.n, c.last), direction=LT }}
body {{ s = {state} parameter(0)
  n = s64[] get-tuple-element(s), index=0
  one = s64[] constant(1)
  next = s64[] add(n, one)
  x = {inputs[0]} get-tuple-element(s), index=1
  y = {inputs[0]} sine(x)
  ROOT t = {state} tuple(next, y) }}
ENTRY e {{ {parameters}
  zero = s64[] constant(0)
  first = {state} tuple(zero, p.0)
  loop = {state} while(first), condition=condition, body=body
  ROOT r = {inputs[0]} get-tuple-element(loop), index=1 }}'''))

comparison.with_context_ops = with_context_ops
"""
COMPILE = """
import jax
import hlo_dispatch
import jax.numpy as jnp
begin = time.time()
w = np.ones((256, 256), "float32")
with hlo_dispatch.enabled():
    compiled = jax.jit(lambda x, w: jnp.tanh(x @ w)).lower(w, w).compile()
print("compiled", time.time() - begin, hlo_dispatch.statistics().seconds, flush=True)
"""
TUNE = """
watchdog.MAX_SECONDS = 1e9
from pathlib import Path
from hlo_dispatch.cli.main import main
sys.argv = ["hlo-dispatch", "tune", sys.argv[1]]
main()
"""


def child(code: str, folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    environment = clean_environment(HLO_DISPATCH_CACHE_DIR=str(folder), **more)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_region_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    """Nor does it hold up the process's end; the next process does not try it again."""
    begin = time.perf_counter()
    first = child(ENDLESS + COMPILE, tmp_path, HLO_DISPATCH_MEASURE_SECONDS="60")
    output, errors = first.communicate(timeout=90)
    assert first.returncode == 0, errors
    assert "compiled" in output
    assert "had not ended after" in errors
    # Starting Python and JAX takes a while on a busy machine; waiting for the region would take years.
    assert time.perf_counter() - begin < 60
    entries = [entry.measured for entry in Store(tmp_path).entries()]
    assert [entry.timed_out_after > 0 for entry in entries] == [True]
    second = child(ENDLESS + COMPILE, tmp_path, HLO_DISPATCH_MEASURE_SECONDS="60")
    output, errors = second.communicate(timeout=90)
    assert second.returncode == 0, errors
    assert "had not ended after" not in errors
    assert len(Store(tmp_path).entries()) == 1


def test_tune_ends_at_once_on_ctrl_c(tmp_path: Path, product: Path) -> None:
    process = child(ENDLESS + TUNE, tmp_path, str(product))
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    # Soon it is compiled, and never done.
    time.sleep(4)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    begin = time.perf_counter()
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert time.perf_counter() - begin < 10


@pytest.fixture
def product(tmp_path: Path) -> Path:
    import jax.numpy as jnp
    import numpy as np

    from hlo_dispatch.jax_plugin.explaining import optimized

    w = np.ones((256, 256), "float32")
    file = tmp_path / "product.pb"
    file.write_bytes(optimized(lambda x, w: jnp.tanh(x @ w), w, w))
    return file
