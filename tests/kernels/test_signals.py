"""Signal handler guard: the process keeps its signal handlers, whatever vendor libraries replace."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from interposed import child, compiled

pytestmark = pytest.mark.any_processor

ACTIONS = """
import ctypes
libc = ctypes.CDLL(None)
def actions():
    '''The handler and the flags of every signal that may have any.'''
    found = {}
    for number in range(1, 65):
        action = (ctypes.c_char * 152)()
        if libc.sigaction(number, None, action) == 0:
            # The C library's own flag says nothing: it is on every action that was ever set.
            found[number] = (action[0:8], int.from_bytes(action[136:140], "little") & ~0x04000000)
    return found
"""

# A convolution and a Cholesky factor, dispatched, on each of the roads by which the libraries come into a process.
WORK = """
import jax, jax.numpy as jnp, numpy as np
random = np.random.default_rng(0)
image, weights = random.standard_normal((1, 28, 28, 64)), random.standard_normal((3, 3, 64, 64))
dimensions = ("NHWC", "HWIO", "NHWC")
def convolve(image, weights):
    product = jax.lax.conv_general_dilated(image, weights, (1, 1), "SAME", dimension_numbers=dimensions)
    return jax.nn.relu(product)
def work():
    a = random.standard_normal((300, 300))
    calls = [(convolve, (image.astype(np.float32), weights.astype(np.float32))),
             (jnp.linalg.cholesky, ((a @ a.T + 300 * np.eye(300)).astype(np.float32),))]
    for function, operands in calls:
        compiled = jax.jit(function).lower(*operands).compile()
        assert "hlo_dispatch." in compiled.as_text()
        assert np.isfinite(np.asarray(compiled(*operands))).all()
"""

ROADS = {
    "install": WORK + "import hlo_dispatch; hlo_dispatch.install(policy='always'); work()",
    "door": WORK + "jax.devices(); work()",
    "doctor": "from hlo_dispatch.cli import doctor; assert len(doctor.examine()) > 10",
    "libraries": "from hlo_dispatch.vendor import kernels, libraries; kernels.warm_up(); assert libraries.mkl()",
}
VARIABLES = {"door": {"HLO_DISPATCH": "1", "HLO_DISPATCH_POLICY": "always"}}

CHECKED = (
    ACTIONS
    + """
import faulthandler, os, signal, sys, tempfile
ran = []
NUMBERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
for number in NUMBERS:
    signal.signal(number, lambda number, frame: ran.append(number))
stacks = tempfile.TemporaryFile()
faulthandler.enable(stacks)
faulthandler.register(signal.SIGQUIT, stacks)
before = actions()
%s
changed = [number for number, action in actions().items() if action != before[number]]
assert not changed, changed
for number in NUMBERS:
    os.kill(os.getpid(), number)
assert ran == list(NUMBERS), ran
os.kill(os.getpid(), signal.SIGQUIT)
assert os.fstat(stacks.fileno()).st_size > 0
try:
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit("nothing was interrupted")
except KeyboardInterrupt:
    pass
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGTERM)
"""
)


# With the variable set to 0 Intel's OpenCL runtime takes the handlers over although we ask it not to.
@pytest.mark.parametrize("variables", [{}, {"CL_DISABLE_STACK_TRACE": "0"}], ids=["asked", "taken"])
@pytest.mark.parametrize("road", [pytest.param(r, marks=pytest.mark.onemkl) if r == "libraries" else r for r in ROADS])
def test_handlers_are_the_hosts(road: str, variables: dict[str, str]) -> None:
    done = child(CHECKED % ROADS[road], **VARIABLES.get(road, {}), **variables)
    assert done.returncode == -signal.SIGTERM, done.stderr


TAKING = """
#include <signal.h>
extern "C" void take(int number) { signal(number, [](int) {}); }
__attribute__((constructor)) static void begin() { take(SIGUSR1); take(SIGALRM); take(SIGVTALRM); }
"""

WATCHED = (
    ACTIONS
    + """
import signal, sys
from hlo_dispatch import _kernels
signal.signal(signal.SIGUSR1, lambda *_: None)
kept = _kernels.keep_signals()
before = actions()
library = ctypes.CDLL(sys.argv[1])
assert actions()[signal.SIGUSR1] != before[signal.SIGUSR1]
# Meanwhile the host sets some of its own, one of them with code in no library at all.
signal.signal(signal.SIGUSR2, lambda *_: None)
signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
callback = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
libc.signal(signal.SIGHUP, callback)
hosts = actions()
del kept
now = actions()
for number in (signal.SIGUSR1, signal.SIGALRM):
    assert now[number] == before[number], number
for number in (signal.SIGUSR2, signal.SIGVTALRM, signal.SIGHUP):
    assert now[number] == hosts[number] != before[number], number
# A library that came with an earlier one is still a library.
kept = _kernels.keep_signals()
library.take(signal.SIGUSR1)
del kept
assert actions()[signal.SIGUSR1] == before[signal.SIGUSR1]
"""
)


def test_only_what_a_library_took_is_put_back(tmp_path: Path) -> None:
    done = child(WATCHED, str(compiled(tmp_path / "libtaking.so", TAKING)))
    assert done.returncode == 0, done.stderr
