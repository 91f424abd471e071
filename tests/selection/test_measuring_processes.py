"""Many threads or processes measure at once, one is killed, and JAX's compilation cache is used in between."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import regions_in

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.jax_plugin.tuning import tune_module
from side_by_side import assert_close
from warm import run_python

pytestmark = [pytest.mark.usefixtures("_own_store"), pytest.mark.any_processor]


@pytest.mark.usefixtures("_any_answer")
def test_two_threads_compile_and_measure(store: Store) -> None:
    """Each is called back while the other measures or waits; neither may wait for what the other holds."""
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for size in (48, 64, 80):
                x, w = np.ones((64, size), "float32"), np.ones((size, 32 + number), "float32")
                result = jax.jit(lambda x, w: jnp.tanh(x @ w / 99))(x, w)
                assert_close(np.asarray(result), np.tanh(x @ w / 99), 1e-5)
        except BaseException as problem:
            problems.append(problem)

    with hlo_dispatch.enabled():
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive(), "two compiles wait for each other"
    assert problems == []
    assert len(store.entries()) == 6


TUNE = """
import sys
from pathlib import Path
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.jax_plugin.tuning import tune_module
Time.may_win = Time.is_doubtful = lambda *_: False  # eight processes on two cores: nothing would ever be clear

def tune():
    tuned = tune_module(Path(sys.argv[1]).read_bytes())
    print(sorted((region.formula, region.shape, region.chosen) for region in tuned.regions), tuned.left, tuned.failures)
"""
# Importing takes as long as tuning: they are forked from one that has started nothing.
AT_ONCE = f"""{TUNE}
import os, traceback, warnings
warnings.simplefilter("ignore")
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child:
        children.append(child)
        continue
    status = 1
    try:
        sys.stdout = open(f"{{sys.argv[1]}}.{{number}}", "w")
        tune()
        sys.stdout.close()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def tuning_environment(store: Store) -> dict[str, str]:
    return clean_environment(HLO_DISPATCH_CACHE_DIR=str(store.directory), HLO_DISPATCH_STRICT="1")


def tuning(module_file: Path, store: Store) -> subprocess.Popen:
    command, environment = [sys.executable, "-c", f"{TUNE}\ntune()", str(module_file)], tuning_environment(store)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_eight_processes_tune_one_model(module_file: Path, store: Store) -> None:
    done = run_python(AT_ONCE, module_file, 8, environment=tuning_environment(store))
    assert done.returncode == 0, done.stderr
    answers = [module_file.with_name(f"{module_file.name}.{number}").read_text() for number in range(8)]
    assert len(set(answers)) == 1, "all have decided the same"
    assert answers[0].endswith("0 0\n")
    assert len(regions_in(store)) == answers[0].count("f32["), "nothing lost, nothing twice"


@pytest.mark.usefixtures("_any_answer")
def test_killed_while_it_measures(module_file: Path, store: Store) -> None:
    """Whoever comes next finds what was done, no lock that is held for ever, and does the rest."""
    process = tuning(module_file, store)
    deadline = time.monotonic() + 120
    while not store.entries():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    done = {entry.region: entry for entry in store.entries()}
    tuned = tune_module(module_file.read_bytes())
    assert (tuned.left, tuned.failures) == (0, 0)
    after = {entry.region: entry for entry in store.entries()}
    assert len(regions_in(store)) == len(tuned.regions)
    assert {region: after[region] for region in done} == done, "nothing was measured twice"


def test_jax_compilation_cache_follows_the_store(tmp_path: Path, store: Store) -> None:
    """An executable of a time when less was known is not used again; nor is ours without the store."""
    code = """
import sys, jax, numpy as np, hlo_dispatch
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.run.running_time import running_time
Time.may_win = Time.is_doubtful = lambda *_: False
hlo_dispatch.install(policy=sys.argv[2])
x, w = np.ones((1, 28, 28, 32), "float32"), np.ones((3, 3, 1, 32), "float32")
f = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
    feature_group_count=32)
jax.jit(f).lower(x, w).compile()
print(hlo_dispatch.statistics().modules)
"""

    def modules(policy: str) -> int:
        environment = clean_environment(
            HLO_DISPATCH_CACHE_DIR=str(store.directory), HLO_DISPATCH_MEASURE_SECONDS="60", HLO_DISPATCH_STRICT="1"
        )
        done = run_python(code, tmp_path / "jax", policy, environment=environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert modules("measure") == 1, "compiled, and measured on the way"
    assert modules("measure") == 1, "more is known now: compiled once more"
    assert modules("measure") == 0, "from the cache"
    assert modules("stored") == 1, "another policy"
    store.remove()
    assert modules("stored") == 1, "less is known"
