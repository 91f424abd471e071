"""For every test: failures of the pass are raised rather than survived, and random tests repeat themselves."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from environment import import_path

# Read by the plug-in at every compile; the tests of its fallback take it away again.
os.environ["HLO_DISPATCH_STRICT"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A test's program is small: its code is made in one piece, by the one processor that a test has.
os.environ["XLA_FLAGS"] = f"--xla_cpu_parallel_codegen_split_count=1 {os.environ.get('XLA_FLAGS', '')}"
# What the user's shell says of every program is not said of tests.
_OF_PROGRAMS = ("", "_POLICY", "_TABLES", "_FREEZE", "_FREEZE_MEMORY")
for _name in (f"HLO_DISPATCH{_end}" for _end in _OF_PROGRAMS):
    os.environ.pop(_name, None)
# Nothing of the user's is read or written, and compiling measures nothing unless a test asks for it.
os.environ["HLO_DISPATCH_CACHE_DIR"] = tempfile.mkdtemp(prefix="hlo_dispatch_tests_")
os.environ["HLO_DISPATCH_MEASURE_SECONDS"] = "0"
atexit.register(shutil.rmtree, os.environ["HLO_DISPATCH_CACHE_DIR"], ignore_errors=True)

# Processes that tests start import what tests do, wherever they run.
if _path := import_path():
    os.environ["PYTHONPATH"] = _path

# What a script starts in the background ignores Ctrl-C, and so would every process that a test starts to interrupt it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling takes as long as it takes, and the suite must give the same answer twice: `--hypothesis-profile=hunt`
# searches further, differently each time.
_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("suite", derandomize=True, database=None, max_examples=25, **_COMMON)
settings.register_profile("hunt", max_examples=300, **_COMMON)
settings.load_profile("suite")

_HALF_PRECISION = re.compile(r"float16|\bb?f16")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-goldens", action="store_true", help="rewrite what tests/golden/ expects")
    parser.addoption("--zoo", choices=("quick", "all"), default="quick", help="how much of bench/zoo tests/models runs")
    parser.addoption("--all-sizes", action="store_true", help="linear algebra on large matrices too")


@pytest.fixture(autouse=True)
def _undisturbed() -> Iterator[None]:
    """However busy the machine is, what was timed counts."""
    from quiet_meter import QuietMeter

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hlo_dispatch.autotune.compare.timing.this_machine_meter", QuietMeter)
        yield


@pytest.fixture
def _compiled_quickly(request: pytest.FixtureRequest) -> Iterator[None]:
    """For whole programs of which the results count: what XLA makes itself of them need not be fast.

    Not where a parameter of the test is half precision: how often it rounds is part of what is made.
    """
    from compiled_once import compiled_quickly

    with contextlib.nullcontext() if _HALF_PRECISION.search(request.node.name) else compiled_quickly():
        yield


def pytest_collection_finish() -> None:
    """Where tests are about to run; with xdist that is not the process that hands them out."""
    from compiled_once import keep_what_stock_compiles
    from reused_contexts import keep_contexts

    keep_what_stock_compiles()
    keep_contexts()
    # What is imported stays: the collector need not look through all of it again and again.
    gc.collect()
    gc.freeze()
