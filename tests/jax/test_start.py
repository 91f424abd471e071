"""Installing starts nothing: what JAX allows before its first use it allows after `install()`, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from environment import clean_environment
from warm import run_python

BEFORE = """
import os, sys
from pathlib import Path
import jax, numpy as np, hlo_dispatch

def threads():
    return len(os.listdir("/proc/self/task"))

def vendor_libraries():
    maps = Path("/proc/self/maps").read_text()
    return [name for name in ("libdnnl", "libmkl", "libsycl", "libintelocl") if name in maps]

def backends():
    from jax._src import xla_bridge
    return xla_bridge.backends_are_initialized()

def dispatched():
    x, w = np.ones((8, 16), "float32") / 3, np.ones((16, 32), "float32") / 7
    compiled = jax.jit(lambda x, w: jax.numpy.tanh(x @ w)).lower(x, w).compile()
    assert np.abs(compiled(x, w) - np.tanh(x @ w)).max() < 1e-6
    return "hlo_dispatch." in compiled.as_text()
"""


def run(code: str, **environment: str) -> str:
    """The output of a process that knows what is above, in which nothing was started."""
    done = run_python(BEFORE + code, environment=clean_environment(**environment))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_afresh(code: str) -> str:
    """The same of one that has imported nothing yet, either."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        'hlo_dispatch.install(policy="always")',
        "hlo_dispatch.install()",
        "hlo_dispatch.uninstall()",
        "hlo_dispatch.install(); hlo_dispatch.uninstall()",
        'with hlo_dispatch.enabled(policy="heuristic"): pass',
        "hlo_dispatch.installed(), hlo_dispatch.statistics(), hlo_dispatch.reports()",
    ],
)
def test_nothing_is_started(code) -> None:
    printed = run_afresh(f"before = threads()\n{code}\nprint(threads() - before, vendor_libraries(), backends())")
    assert printed == "0 [] False"


def test_jax_can_still_be_configured() -> None:
    code = """
hlo_dispatch.install(policy="always")
jax.config.update("jax_num_cpu_devices", 4)
print(len(jax.devices()), dispatched())
"""
    assert run(code) == "4 True"


def test_distributed_can_still_be_initialized() -> None:
    code = """
import socket
with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
hlo_dispatch.install(policy="always")
jax.distributed.initialize(f"localhost:{port}", num_processes=1, process_id=0)
print(dispatched())
jax.distributed.shutdown()
"""
    assert run(code) == "True"


def test_a_child_forked_before_any_use_of_jax_runs() -> None:
    code = """
import signal
hlo_dispatch.install(policy="always")
child = os.fork()
if not child:
    signal.alarm(100)
    os._exit(42 if dispatched() else 1)
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status), dispatched())
"""
    assert run(code) == "42 True"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("", "True True"),
        ('hlo_dispatch.install(policy="never")', "False True"),
        ("hlo_dispatch.uninstall()", "False False"),
        ("jax.devices(); hlo_dispatch.uninstall()", "False False"),
    ],
)
def test_the_program_comes_before_the_environment(code, printed) -> None:
    code += "\nprint(dispatched(), hlo_dispatch.installed())"
    assert run(code, HLO_DISPATCH="1", HLO_DISPATCH_POLICY="always") == printed


def test_the_environment_comes_back_after_a_block() -> None:
    code = """
with hlo_dispatch.enabled(policy="never"):
    inside = dispatched()
print(inside, dispatched())
"""
    assert run(code, HLO_DISPATCH="1", HLO_DISPATCH_POLICY="always") == "False True"
    assert run(code) == "False False"


def test_explain_as_the_first_use_explains_what_the_environment_asked_for() -> None:
    code = """
x, w = np.ones((8, 16), "float32"), np.ones((16, 32), "float32")
print(len(hlo_dispatch.explain(lambda x, w: jax.numpy.tanh(x @ w), x, w).dispatched), hlo_dispatch.installed())
"""
    assert run(code, HLO_DISPATCH="1", HLO_DISPATCH_POLICY="always") == "1 True"
    assert run(code, HLO_DISPATCH="1", HLO_DISPATCH_POLICY="never") == "0 True"


MEASURED_JOINTLY = """
import faulthandler, threading, time
from hlo_dispatch.jax_plugin import entry_point
faulthandler.dump_traceback_later(60, exit=True)
wait, before = (float(seconds) for seconds in sys.argv[1:])
started, devices, enter = threading.Event(), jax.devices, entry_point.initialize

def slow_enter():
    # The thread that starts JAX is inside JAX's lock here, and on its way to ours.
    started.set()
    time.sleep(wait)
    enter()

def slow_devices(*arguments):
    time.sleep(before)
    return devices(*arguments)

entry_point.initialize, jax.devices = slow_enter, slow_devices
first = threading.Thread(target=devices)
first.start()
started.wait()
hlo_dispatch.{call}
first.join()
print(backends())
"""


@pytest.mark.parametrize("call", ['install(policy="always")', "uninstall()"])
@pytest.mark.parametrize(("wait", "before"), [(0.0, 0.0), (1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_installing_while_another_thread_starts_jax(call, wait, before) -> None:
    code, environment = BEFORE + MEASURED_JOINTLY.replace("{call}", call), clean_environment(HLO_DISPATCH="1")
    done = run_python(code, wait, before, environment=environment)
    assert done.stdout.strip() == "True", done.stderr
