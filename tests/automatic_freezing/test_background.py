"""The background threads: in a process that ends while something is prepared, and in a forked one."""

from __future__ import annotations

import threading

import pytest

from environment import clean_environment
from hlo_dispatch.automatic_freezing.background import BackgroundThread, ShortThreads
from warm import run_python

PROGRAM = """
import os, threading, time
import jax, jax.numpy as jnp, numpy as np
import hlo_dispatch
from hlo_dispatch.automatic_freezing.background import BackgroundThread

hlo_dispatch.install(policy="never")
p = jnp.ones((256, 256))
first, last = (hlo_dispatch.jit(lambda p, x, k=k: jnp.tanh(x @ (p + p)) + k) for k in (0, 1))
x = jnp.zeros((4, 256))
end = time.monotonic() + 120
while not first.sites or first.sites[0].is_watching and not any(
    call.is_faster for call in (first.sites[0].program.calls.values() if first.sites[0].program else ())
):
    np.testing.assert_array_equal(first(p, x), 0)
    assert time.monotonic() < end, "nothing was decided"
assert not first.sites[0].preparation.failure, first.sites[0].preparation.failure
thread = BackgroundThread("test")
thread.submit(lambda: None)
child = os.fork()
if not child:
    done = threading.Event()
    thread.submit(done.set)
    os._exit(0 if done.wait(60) else 1)
assert os.waitpid(child, 0)[1] == 0
for _ in range(3):
    np.testing.assert_array_equal(last(p, x), 1)
print("ends")
"""

FORKING = """
import os, threading, time
import jax, jax.numpy as jnp, numpy as np
import hlo_dispatch
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.automatic_freezing.services import Services

hlo_dispatch.install(policy="never")
is_compiling, may_end = threading.Event(), threading.Event()

def listen(event, _, **__):
    if "freeze-compile" in threading.current_thread().name:
        is_compiling.set()
        may_end.wait(120)

weights = jnp.ones((256, 256))
function = JittedFunction(lambda p, x: jnp.tanh(x @ (p + p)), {}, Services(samples=0))
end = time.monotonic() + 120
while not function.sites or function.sites[0].program is None:
    np.testing.assert_array_equal(function(weights, jnp.zeros((4, 256))), 0)
    assert time.monotonic() < end, "nothing was frozen"
jax.monitoring.register_event_duration_secs_listener(listen)
while not is_compiling.is_set():
    np.testing.assert_array_equal(function(weights, jnp.zeros((5, 256))), 0)
    assert time.monotonic() < end, "nothing was compiled"
site, = function.sites
assert site.preparation.is_running
child = os.fork()
if not child:
    assert not site.preparation.is_running
    function.clear_cache()  # which frees, where another thread of the parent's compiles
    assert site.program is None
    is_freed = threading.Event()
    assert Services().free(is_freed.set)
    os._exit(7 if is_freed.wait(15) else 1)
begin = time.monotonic()
ended, status = 0, None
while not ended and time.monotonic() < begin + 20:
    ended, status = os.waitpid(child, os.WNOHANG)
    time.sleep(0.1)
if not ended:
    os.kill(child, 9)
may_end.set()
assert ended and os.waitstatus_to_exitcode(status) == 7, status
for x in (4, 5):
    np.testing.assert_array_equal(function(weights, jnp.zeros((x, 256))), 0)
print("ends")
"""


def test_a_child_that_is_forked_while_something_is_compiled_frees() -> None:
    done = run_python(FORKING, environment=clean_environment())
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_a_process_that_ends_while_something_is_prepared() -> None:
    done = run_python(PROGRAM, environment=clean_environment())
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_a_job_does_not_run_where_there_is_no_thread_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    done = threading.Event()
    for threads in (BackgroundThread("test"), ShortThreads("test")):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", _refuse)
            assert not threads.submit(lambda: ran.append(1))
        done.clear()
        assert threads.submit(done.set)
        assert done.wait(60)
    assert not ran


def test_short_threads_do_not_wait_for_each_other() -> None:
    threads, first, second = ShortThreads("test"), threading.Event(), threading.Event()

    def wait() -> None:
        if first.wait(60):
            second.set()

    assert threads.submit(wait)
    assert threads.submit(first.set)
    assert second.wait(60)


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
