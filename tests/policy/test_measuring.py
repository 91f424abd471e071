"""Measuring as a user meets it: inside a compile, once, within its budget, and never in the way."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch import measuring
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.text import from_text
from hlo_dispatch.pattern import shipped_tables
from hlo_dispatch.policy import trial
from hlo_dispatch.policy import tuner as tuner_module
from hlo_dispatch.policy.measure import Unmeasurable
from hlo_dispatch.policy.measured import APART, GUESSED, STOCK, TOGETHER, Measured
from hlo_dispatch.policy.race import Time
from hlo_dispatch.policy.running_time import running_time
from hlo_dispatch.policy.store import Entry, Store
from hlo_dispatch.tuning import tune_module
from side_by_side import assert_close

COMMAND = Path(sys.executable).with_name("hlo-dispatch")
RANDOM = np.random.default_rng(7)
X, W, B = (RANDOM.standard_normal(shape, dtype="float32") / 4 for shape in ((64, 256), (256, 128), (128,)))
IMAGE, FILTER = (RANDOM.standard_normal(s, dtype="float32") / 4 for s in ((1, 28, 28, 32), (3, 3, 1, 32)))


def dense(x, w, b):
    return jax.nn.gelu(x @ w + b)


def depthwise(x, w):
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(
        jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dimensions, feature_group_count=32)
    )


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty store, and time to measure."""
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    yield
    hlo_dispatch.uninstall()


@pytest.fixture
def _any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, somebody is found to be faster."""
    monkeypatch.setattr(Time, "may_win", lambda *_: False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def compiled(function, *arguments, policy: str = "measure"):
    with hlo_dispatch.enabled(policy=policy):
        return jax.jit(lambda *a: function(*a)).lower(*arguments).compile()


def calls(executable) -> int:
    return executable.as_text().count('custom_call_target="hlo_dispatch.')


def regions_in(store: Store) -> list[Entry]:
    """What is stored, without whole programs."""
    return [entry for entry in store.entries() if entry.measured.kernel != trial.WHOLE]


@pytest.fixture
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much else is going on that nothing can be told."""
    monkeypatch.setattr(Time, "wins", lambda *_: False)
    monkeypatch.setattr(Time, "may_win", lambda *_: True)


def forget(store: Store) -> None:
    """Be a process that has read nothing yet."""
    measuring._knowledge.clear()


# --- in a compile ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_any_answer")
def test_a_region_is_measured_once(store: Store) -> None:
    before = measuring.tally.measured
    first = compiled(depthwise, IMAGE, FILTER)
    assert measuring.tally.measured == before + 1
    (entry,) = store.entries()
    measured = entry.measured
    assert set(measured.seconds) >= {STOCK, measured.chosen}
    assert all(0 < seconds < 1 for seconds in measured.seconds.values())
    assert calls(first) == (measured.chosen != STOCK)
    assert all(value < 1e-5 for value in measured.differences.values())
    report = hlo_dispatch.reports()[-1]
    assert report.regions[0].reason.startswith("measured: ")
    # XLA's depthwise convolutions are several times slower than oneDNN's, on any machine.
    assert measured.chosen != STOCK, measured
    assert_close(np.asarray(first(IMAGE, FILTER)), np.asarray(jax.jit(depthwise)(IMAGE, FILTER)))
    # The same region in another program, in what would be another process.
    forget(store)
    compiled(lambda x, w: depthwise(x, w), IMAGE, FILTER)
    assert measuring.tally.measured == before + 1
    assert "match, measure and decide" in hlo_dispatch.reports()[-1].stages


@pytest.mark.usefixtures("_any_answer")
def test_stored_never_measures(store: Store) -> None:
    before = measuring.tally.measured
    guessed = compiled(depthwise, IMAGE, FILTER, policy="stored")
    assert (measuring.tally.measured, store.entries()) == (before, [])
    assert not hlo_dispatch.reports()[-1].regions[0].reason.startswith("measured")
    assert calls(guessed) == 1, "the heuristic knows depthwise convolutions"
    compiled(depthwise, IMAGE, FILTER)
    exported = store.export()
    store.remove()
    assert store.load(exported) == 1
    forget(store)
    compiled(depthwise, IMAGE, FILTER, policy="stored")
    assert hlo_dispatch.reports()[-1].regions[0].reason.startswith("measured: ")


@pytest.mark.usefixtures("_any_answer")
def test_without_a_budget_the_heuristic_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "0")
    before = measuring.tally.left
    compiled(depthwise, IMAGE, FILTER)
    assert store.entries() == []
    assert measuring.tally.left > before
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    compiled(depthwise, IMAGE, FILTER)
    assert len(store.entries()) == 1, "a later compile goes on where this one stopped"


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_budget_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", text)
    with pytest.raises(hlo_dispatch.PolicyError, match="HLO_DISPATCH_MEASURE_SECONDS is"):
        hlo_dispatch.install()


def test_a_failure_is_counted_and_the_heuristic_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLO_DISPATCH_STRICT")

    def fail(*_, **__):
        raise ZeroDivisionError("deliberate")

    monkeypatch.setattr(tuner_module, "measure", fail)
    before, failures = hlo_dispatch.statistics(), measuring.tally.failures
    executable = compiled(lambda x, w: depthwise(x, w) * 2, IMAGE, FILTER)
    assert calls(executable) == 1
    assert hlo_dispatch.statistics().failures == before.failures
    assert measuring.tally.failures == failures + 1
    assert store.entries() == []


@pytest.mark.usefixtures("_busy")
def test_what_cannot_be_told_is_asked_another_time(store: Store) -> None:
    before = measuring.tally.unclear
    executable = compiled(lambda x, w: depthwise(x, w) + 3, IMAGE, FILTER)
    assert measuring.tally.unclear == before + 1
    assert store.entries() == []
    assert calls(executable) == 1, "as the heuristic says"


@pytest.mark.parametrize("size", [2, 8])
def test_tiny_products_stay_as_they_are(store: Store, size: int) -> None:
    small = np.ones((size, size), "float32")
    before = measuring.tally.measured
    assert calls(compiled(lambda x, w: x @ w, small, small)) == 0

    def steps(x, w):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=1000)

    assert calls(compiled(steps, small, small)) == 0
    assert (measuring.tally.measured, store.entries()) == (before, [])


def test_many_tiny_products_stay_as_they_are(store: Store) -> None:
    """The program of https://github.com/openxla/xla/issues/5875, whose products became 38 times slower in oneDNN."""

    @jax.vmap
    @jax.grad
    def program(x):
        out = 0
        for i in range(50):
            y = x @ jnp.array([i, i + 1], dtype=jnp.float32)
            out = out + y * x[0]
        return out

    assert calls(compiled(program, jnp.ones((2, 2)))) == 0
    assert store.entries() == []


@pytest.mark.usefixtures("_any_answer")
def test_the_users_settings_do_not_matter_and_stay(store: Store) -> None:
    with jax.debug_nans(True), jax.enable_x64(True):
        executable = compiled(depthwise, IMAGE, FILTER)
        assert jnp.asarray(np.float64(1)).dtype == "float64"
    assert jnp.asarray(np.float64(1)).dtype == "float32"
    assert calls(executable) == 1
    assert len(store.entries()) == 1


@pytest.mark.usefixtures("_any_answer")
def test_a_compile_inside_a_trace(store: Store) -> None:
    """What measuring does there must happen, not be written down."""
    found = []

    def program(x):
        found.append(compiled(depthwise, IMAGE, FILTER))
        return x + 1

    assert jax.jit(program)(1.0) == 2.0
    assert calls(found[0]) == 1
    assert len(store.entries()) == 1


# --- threads and processes ---------------------------------------------------------------------------------


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
from hlo_dispatch.policy.race import Time
from hlo_dispatch.policy.running_time import running_time
from hlo_dispatch.tuning import tune_module
Time.may_win = lambda *_: False  # eight processes on two cores: nothing would ever be clear
print("ready", flush=True)
tuned = tune_module(Path(sys.argv[1]).read_bytes())
print(sorted((region.formula, region.shape, region.chosen) for region in tuned.regions), tuned.left, tuned.failures)
"""


@pytest.fixture(scope="module")
def module_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module with four different regions."""
    from hlo_dispatch.plugin import optimized

    def network(x, w, v, image, window):
        return jnp.tanh(x @ w) @ v, depthwise(image, window), depthwise(image[:, :20], window)

    v = np.ones((128, 96), "float32")
    file = tmp_path_factory.mktemp("module") / "network.pb"
    file.write_bytes(optimized(network, X, W, v, IMAGE, FILTER))
    return file


def tuning(module_file: Path, store: Store) -> subprocess.Popen:
    environment = clean_environment(HLO_DISPATCH_CACHE_DIR=str(store.directory), HLO_DISPATCH_STRICT="1")
    command = [sys.executable, "-c", TUNE, str(module_file)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_eight_processes_tune_one_model(module_file: Path, store: Store) -> None:
    processes = [tuning(module_file, store) for _ in range(8)]
    answers = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        answers.append(output)
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
from hlo_dispatch.policy.race import Time
from hlo_dispatch.policy.running_time import running_time
Time.may_win = lambda *_: False
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
        command = [sys.executable, "-c", code, str(tmp_path / "jax"), policy]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert modules("measure") == 1, "compiled, and measured on the way"
    assert modules("measure") == 1, "more is known now: compiled once more"
    assert modules("measure") == 0, "from the cache"
    assert modules("stored") == 1, "another policy"
    store.remove()
    assert modules("stored") == 1, "less is known"


# --- the program as a whole --------------------------------------------------------------------------------


def two_layers(x, w, image, window):
    return jnp.tanh(x @ w), depthwise(image, window), depthwise(image[:, :20], window)


@pytest.mark.usefixtures("_any_answer")
def test_a_program_is_tried_as_a_whole(store: Store) -> None:
    arguments = (X, W, IMAGE, FILTER)
    executable = compiled(two_layers, *arguments)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == trial.WHOLE]
    assert set(whole.seconds) <= {STOCK, GUESSED, APART, TOGETHER}
    assert whole.thorough, "all regions were known in the end"
    assert (calls(executable) > 0) == (whole.chosen != STOCK)
    before = measuring.tally.measured
    assert calls(compiled(two_layers, *arguments)) == calls(executable)
    assert measuring.tally.measured == before


@pytest.mark.usefixtures("_any_answer")
def test_a_program_that_is_faster_with_stock_is_left_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(stock: bytes, variants: dict[str, bytes], *, left: float, is_final: bool) -> Measured:
        assert all(b"hlo_dispatch.onednn" in module for module in variants.values())
        seconds = {STOCK: 1e-3, APART: 2e-3}
        return Measured(STOCK, seconds, thorough=is_final, formula="all of it", kernel=trial.WHOLE)

    monkeypatch.setattr(trial, "compare", lost)
    assert calls(compiled(two_layers, X, W, IMAGE, FILTER)) == 0
    reasons = {region.reason for region in hlo_dispatch.reports()[-1].regions if region.refusal is not None}
    assert "measured: stock 1 ms against 2 ms" in reasons
    monkeypatch.undo()
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(store.directory))
    forget(store)
    assert calls(compiled(two_layers, X, W, IMAGE, FILTER, policy="stored")) == 0


@pytest.mark.parametrize(
    ("stock", "together", "apart", "chosen"),
    [(3.0, 1.0, 2.0, TOGETHER), (3.0, 2.0, 1.0, APART), (1.0, 2.0, 2.0, STOCK), (1.0, 1.0, 1.0, STOCK)],
)
def test_which_program_is_chosen(monkeypatch, stock: float, together: float, apart: float, chosen: str) -> None:
    module = from_text("HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0) }")
    times = [Time(seconds, stock - seconds, 0.001) for seconds in (stock, together, apart)]
    monkeypatch.setattr(trial, "race", lambda runners, seconds: times)
    measuring.executable.start()
    assert trial.compare(module, {TOGETHER: module, APART: module}).chosen == chosen


def test_what_may_never_end_is_never_run() -> None:
    loop = """HloModule m
condition { s = (f32[4]{0}) parameter(0)
  ROOT c = pred[] constant(true) }
body { s = (f32[4]{0}) parameter(0)
  x = f32[4]{0} get-tuple-element(s), index=0
  ROOT t = (f32[4]{0}) tuple(x) }
ENTRY e { x = f32[4]{0} parameter(0)
  t = (f32[4]{0}) tuple(x)
  w = (f32[4]{0}) while(t), condition=condition, body=body
  ROOT r = f32[4]{0} get-tuple-element(w), index=0 }
"""
    module = from_text(loop)
    with pytest.raises(Unmeasurable):
        trial.compare(module, {GUESSED: module})
    known = from_text(loop.replace("body=body", 'body=body, backend_config={"known_trip_count":{"n":"7"}}'))
    assert running_time(Module.from_bytes(known)) is not None


# --- the program first -------------------------------------------------------------------------------------


@pytest.fixture
def _only_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is over once the program was tried as the heuristic has it."""
    monkeypatch.setattr(tuner_module.Tuner, "__call__", lambda self, unknown, ask: setattr(self, "_reached_all", False))


@pytest.mark.usefixtures("_only_programs")
@pytest.mark.parametrize(("gain", "dispatched"), [(-0.3, False), (0.004, False), (0.5, True)])
def test_the_first_compile_is_the_better_of_heuristic_and_stock(
    store: Store, monkeypatch: pytest.MonkeyPatch, gain: float, dispatched: bool
) -> None:
    def told(runners, seconds: float) -> list[Time]:
        return [Time(1.0, 0.0, 0.0)] + [Time(1.0 - gain, gain, 0.0)] * (len(runners) - 1)

    monkeypatch.setattr(trial, "race", told)
    first = compiled(two_layers, X, W, IMAGE, FILTER)
    guessed = compiled(two_layers, X, W, IMAGE, FILTER, policy="heuristic")
    assert calls(guessed) >= 2
    assert calls(first) == (calls(guessed) if dispatched else 0)
    (entry,) = store.entries()
    assert set(entry.measured.seconds) == {STOCK, GUESSED}
    assert not entry.measured.thorough
    # The next compile has time for the regions, and then for what follows from them.
    monkeypatch.undo()
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(store.directory))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    monkeypatch.setattr(Time, "may_win", lambda *_: False)
    compiled(two_layers, X, W, IMAGE, FILTER)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == trial.WHOLE]
    assert whole.thorough


@pytest.mark.usefixtures("_any_answer")
def test_a_loop_of_known_length_is_tried_as_a_whole(store: Store) -> None:
    def loop(image, window):
        def step(image, _):
            return depthwise(depthwise(image, window) + 1, window), None

        return jax.lax.scan(step, image, None, length=5)[0]

    executable = compiled(loop, IMAGE, FILTER)
    (whole,) = [entry.measured for entry in store.entries() if entry.measured.kernel == trial.WHOLE]
    assert (calls(executable) > 0) == (whole.chosen != STOCK)


@pytest.mark.usefixtures("_any_answer")
def test_a_loop_whose_length_depends_on_the_inputs_is_not(store: Store) -> None:
    def loop(image, window):
        def step(image):
            return depthwise(depthwise(image, window) + 1, window)

        return jax.lax.while_loop(lambda image: image[0, 0, 0, 0] < 9, step, image)

    compiled(loop, IMAGE, FILTER)
    assert store.entries()
    assert regions_in(store) == store.entries()


def test_what_takes_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    module = from_text("HloModule m\nENTRY e { ROOT x = f32[4]{0} parameter(0) }")
    measuring.executable.start()
    with pytest.raises(trial.OutOfTime):
        trial.compare(module, {GUESSED: module}, left=0.0)
    monkeypatch.setattr(trial, "expected_seconds", lambda *_: 0.0)
    compiles = []
    real = trial.Executable
    monkeypatch.setattr(trial, "Executable", lambda serialized: compiles.append(1) or real(serialized))
    with pytest.raises(trial.OutOfTime):
        trial.compare(module, {GUESSED: module}, left=1e-9)
    assert len(compiles) == 1, "stock alone has shown that there is no time for the rest"


# --- a kernel that computes something else -----------------------------------------------------------------

WRONG = """
import sys
import jax, numpy as np, hlo_dispatch

hlo_dispatch.install(tables=["mine.yaml"])

def block(x, scale, residual):
    return x * jax.nn.sigmoid(1.5 * x) * scale + residual

random = np.random.default_rng(3)
x, scale, residual = (random.standard_normal(s).astype("float32") for s in ((40, 64), (64,), (40, 64)))
for turn in range(2):
    compiled = jax.jit(lambda *a: block(*a)).lower(x, scale, residual).compile()
    (region,) = hlo_dispatch.reports()[-1].regions
    print(compiled.as_text().count("custom_call_target"), region.refusal.code)
wanted = x / (1 + np.exp(-1.5 * x)) * scale + residual
assert np.abs(np.asarray(compiled(x, scale, residual)) - wanted).max() < 1e-5
if len(sys.argv) > 1:
    from hlo_dispatch.plugin import optimized
    open(sys.argv[1], "wb").write(optimized(block, x, scale, residual))
"""


@pytest.fixture
def wrong_kernel(tmp_path: Path) -> Path:
    """The example of patterns/examples, its handler computing something else than its table says."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build a user's kernel with")
    examples = shipped_tables()[0].parent / "examples"
    folder = tmp_path / "example"
    folder.mkdir()
    shutil.copy(examples / "mine.yaml", folder)
    source = (examples / "scaled_silu.cc").read_text()
    planted = source.replace("+ add[row", "- add[row")
    assert planted != source
    (folder / "scaled_silu.cc").write_text(planted)
    (command,) = re.findall(r"```bash\n(g\+\+ .*?)```", (examples / "README.md").read_text(), re.DOTALL)
    environment = clean_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    subprocess.run(["bash", "-c", command], cwd=folder, check=True, timeout=300, env=environment)
    return folder


def test_a_wrong_kernel_is_refused_with_a_reproducer(wrong_kernel: Path, store: Store) -> None:
    environment = clean_environment(HLO_DISPATCH_CACHE_DIR=str(store.directory), HLO_DISPATCH_MEASURE_SECONDS="60")
    command = [sys.executable, "-c", WRONG, str(wrong_kernel / "block.pb")]
    done = subprocess.run(
        command, cwd=wrong_kernel, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0 wrong-result", "0 wrong-result"], done.stderr
    assert done.stderr.count("its result is wrong") == 1, "said once"
    (entry,) = store.entries()
    (sentence,) = entry.measured.refused.values()
    folder = Path(sentence.rpartition("reproducer: ")[2])
    assert sorted(file.name for file in folder.iterdir()) == [
        "dispatched.hlo", "dispatched.pb", "inputs.json", "stock.hlo", "stock.pb"
    ]  # fmt: skip
    assert 'custom_call_target="mine.scaled_silu"' in (folder / "dispatched.hlo").read_text()
    # On its own, with nothing but the module and the table.
    store.remove()
    checked = subprocess.run(
        [COMMAND, "tune", "--validate-only", "--tables", "mine.yaml", "block.pb"],
        cwd=wrong_kernel, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert checked.returncode == 1, checked.stderr
    assert "wrong" in checked.stdout
    assert [bool(entry.measured.refused) for entry in store.entries()] == [True]


def test_right_results_are_said_to_be_right(store: Store, module_file: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        tuned = tune_module(module_file.read_bytes(), validate_only=True)
    assert tuned.regions
    assert all(not region.refused and region.differences and not region.seconds for region in tuned.regions)
    assert store.entries() == []
    assert caplog.records == []


@pytest.mark.usefixtures("_any_answer")
def test_tune_a_function(store: Store) -> None:
    hlo_dispatch.install()
    tuned = hlo_dispatch.tune(dense, X, W, B)
    (region,) = tuned.regions
    assert {"stock", "whole", "bare", "one step less"} <= set(region.seconds)
    assert [entry.measured.thorough for entry in store.entries()] == [True]
    assert tuned.to_dict()["regions"][0]["formula"] == "gelu_tanh(x @ w + b)"
    before = measuring.tally.measured
    executable = jax.jit(lambda *a: dense(*a)).lower(X, W, B).compile()
    assert measuring.tally.measured == before
    assert calls(executable) == (region.chosen != STOCK)
