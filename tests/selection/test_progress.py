"""Progress display: nothing for a second, then a bar on a terminal or one line where there is none."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from environment import clean_environment
from warm import run_python

pytestmark = pytest.mark.any_processor

# Three measured stretches of two modules: one that is quick, and one that takes its time twice.
STEPS = """
import sys, time
from hlo_dispatch.autotune.progress import ProgressLine

quick = ProgressLine("jit_quick")
quick("x @ w", 0, 1, 5.0)
quick("", 1, 1, 0.0)
slow = ProgressLine("jit_slow")
sys.stderr.write("the user's ")
sys.stderr.flush()
slow("the whole program", 0, 0, 5.0)
time.sleep(0.3)
slow("", 0, 0, 0.0)
slow("x @ w", 0, 7, 4.7)
time.sleep(1.4)
slow("tanh(x @ w)", 3, 7, 3.3)
time.sleep(1.2)
slow("", 7, 7, 0.0)
slow("x @ w", 0, 2, 2.0)
time.sleep(0.7)
slow("", 2, 2, 0.0)
sys.stderr.write("own words\\n")
"""
PROXY = """
import sys
class Proxy:
    def __getattr__(self, name): return getattr(sys.__stderr__, name)
sys.stderr = Proxy()
"""
COMPILED = """
import time
import jax, numpy as np, hlo_dispatch
from hlo_dispatch.autotune import tuner
def measure(*_, **__):
    time.sleep(1.5)
    raise tuner.Unmeasurable("this is a test")
tuner.measure = measure
hlo_dispatch.install()
def quiet(x): return x + 1
def slow(x, w): return jax.numpy.tanh(x @ w)
jax.jit(quiet).lower(np.ones(8, "float32")).compile()
for _ in range(2):
    jax.clear_caches()
    jax.jit(slow).lower(np.ones((256, 256), "float32"), np.ones((256, 256), "float32")).compile()
"""


def piped(code: str, **environment: str) -> str:
    """What the code says on standard error, to a pipe."""
    done = run_python(code, environment=clean_environment(**environment))
    assert done.returncode == 0, done.stderr
    return done.stderr


def on_terminal(code: str, **environment: str) -> str:
    """What the code says on standard error, to a terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([sys.executable, "-c", code], env=clean_environment(**environment), stderr=theirs)
    finally:
        os.close(theirs)
    said = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
    assert process.wait(timeout=120) == 0, said
    return said.decode()


TERMINALS = {
    "bar": (STEPS, {"TERM": "xterm-256color"}),
    "silenced": (STEPS, {"HLO_DISPATCH_PROGRESS": "0"}),
    "somebody else's": (PROXY + STEPS, {"TERM": "xterm-256color"}),
}


@pytest.fixture(scope="module")
def terminal() -> Iterator[Callable[[str], str]]:
    """What was said on each of the terminals; they mostly wait, so all of them at once."""
    with ThreadPoolExecutor() as pool:
        seen = {name: pool.submit(on_terminal, code, **environment) for name, (code, environment) in TERMINALS.items()}
        yield lambda name: seen[name].result()


def test_one_line_in_a_pipe() -> None:
    said = piped(STEPS)
    (line,) = [line for line in said.splitlines() if "hlo-dispatch" in line]
    says = r"hlo-dispatch: measuring 7 regions of jit_slow, at most \d s; HLO_DISPATCH_PROGRESS=0 silences this"
    assert re.search(f"{says}$", line), line
    assert "jit_quick" not in said
    assert "\x1b" not in said


def test_a_bar_on_a_terminal(terminal: Callable[[str], str]) -> None:
    said = terminal("bar")
    pictures = re.findall(r"\x1b7\x1b\[\?7l\x1b\[K(.*?)\x1b\[\?7h\x1b8", said)
    assert len(pictures) >= 3, said
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", picture) for picture in pictures]
    assert all(picture.startswith("hlo-dispatch: measuring jit_slow ") for picture in plain)
    assert any(re.search(r"━ 0 of 7 regions, \d s left", picture) for picture in plain), plain
    assert any("3 of 7 regions" in picture for picture in plain), plain
    assert any("of 2 regions" in picture for picture in plain), "the second has long passed"
    rest = re.sub(r"\x1b7.*?\x1b8", "", said).replace("\x1b[K", "")
    assert rest == "the user's own words\r\n", "what the program says is where it was, on one line"
    assert said.endswith("\x1b[Kown words\r\n"), "nothing of the bar is left"


def test_silenced(terminal: Callable[[str], str]) -> None:
    assert terminal("silenced").split() == ["the", "user's", "own", "words"]


def test_silenced_in_a_pipe() -> None:
    assert piped(STEPS, HLO_DISPATCH_PROGRESS="0").split() == ["the", "user's", "own", "words"]


def test_standard_error_of_somebody_else(terminal: Callable[[str], str]) -> None:
    """What rich and tqdm put in front of a terminal takes whole lines only."""
    said = terminal("somebody else's")
    assert said.count("silences this\r\n") == 1
    assert "\x1b" not in said


def test_standard_error_that_is_closed() -> None:
    assert piped("import sys\nsys.stderr.close()\n" + STEPS.replace("sys.stderr.", "sys.stdout.")) == ""


def test_a_compile_says_it() -> None:
    said = piped(COMPILED, HLO_DISPATCH_MEASURE_SECONDS="30")
    lines = [line for line in said.splitlines() if "hlo-dispatch" in line]
    # The second compile finds what cannot be measured given up, and takes no second.
    (line,) = lines
    assert re.fullmatch(r"hlo-dispatch: measuring 1 region of jit_slow, at most \d+ s; .*", line)
    assert "hlo-dispatch" not in piped(COMPILED, HLO_DISPATCH_MEASURE_SECONDS="30", HLO_DISPATCH_PROGRESS="0")
