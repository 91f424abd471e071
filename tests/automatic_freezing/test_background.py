"""The background threads: in a process that ends while something is prepared, and in a forked one."""

from __future__ import annotations

from environment import clean_environment
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
assert not first.sites[0].failure, first.sites[0].failure
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


def test_a_process_that_ends_while_something_is_prepared() -> None:
    done = run_python(PROGRAM, environment=clean_environment())
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
