"""JAX's persistent compilation cache: hits and misses of processes with more, fewer or other measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from environment import WITH_COMPILATION_CACHE, clean_environment
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.jax_plugin import cache_key, decision_dependencies
from hlo_dispatch.jax_plugin.decision_dependencies import DecisionDependencies, DependencyRecorder
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements, Measurement
from warm import run_python

pytestmark = pytest.mark.any_processor

PROGRAM = (
    WITH_COMPILATION_CACHE
    + """
import numpy as np, hlo_dispatch
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.autotune.compare.timing import Time
Time.may_win = Time.is_doubtful = lambda *_: False  # however busy the machine is, somebody is found to be faster

def depthwise(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=32)

images = {"a": np.ones((1, 28, 28, 32), "float32"), "b": np.ones((1, 20, 20, 32), "float32")}
for step in sys.argv[2:]:
    policy, _, name = step.partition(":")
    if policy != "stock":
        hlo_dispatch.install(policy=policy)
    elif hlo_dispatch.installed():
        hlo_dispatch.uninstall()
    arguments = images[name[-1]], np.ones((3, 3, 1, 32), "float32")
    if name.startswith("seen"):
        optimized(depthwise, *arguments)
    elif name.startswith("explained"):
        print(len(hlo_dispatch.explain(depthwise, *arguments).regions))
    else:
        hits.clear()
        compiled = jax.jit(lambda *a, **k: depthwise(*a, **k)).lower(*arguments).compile()
        assert np.asarray(compiled(*arguments)).max() == 9
        print("found" if hits else "compiled", compiled.as_text().count('custom_call_target="hlo_dispatch.'))
"""
)


@pytest.fixture
def programs(tmp_path: Path, store: Store):
    """Runs programs, `policy:name` each, in a process of their own: each is compiled or found, and calls so many
    kernels."""

    def run(*steps: str) -> list[str]:
        environment = clean_environment(
            HLO_DISPATCH_CACHE_DIR=str(store.directory), HLO_DISPATCH_MEASURE_SECONDS="60", HLO_DISPATCH_STRICT="1"
        )
        done = run_python(PROGRAM, tmp_path / "jax", *steps, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def flip(store: Store) -> None:
    """Have every region decided the other way."""
    exported = json.loads(store.export())
    for entry in exported["entries"]:
        known = entry["measured"]
        known["chosen"] = next(form for form in known["seconds"] if (form == STOCK) != (known["chosen"] == STOCK))
        known["seconds"] = {form: 1.0 if form == known["chosen"] else 9.0 for form in known["seconds"]}
        known |= {"gain": 8.0 * (known["chosen"] != STOCK), "thorough": True}
    assert store.load(json.dumps(exported)) == len(exported["entries"])


@pytest.mark.timing  # it follows what was measured, which another test beside it may change
def test_a_finished_program_stays_finished(programs, store: Store) -> None:
    assert programs("measure:a")[0].startswith("compiled"), "and measured on the way"
    settled, again = programs("measure:a", "measure:a")
    assert settled.startswith("compiled"), "more is known now"
    found = settled.replace("compiled", "found")
    assert again == found
    again, other, last = programs("measure:a", "measure:b", "measure:a")
    assert again == found
    assert other.startswith("compiled")
    assert last == found, "what was measured for another program changes nothing"
    flip(store)
    changed, again = programs("measure:a", "measure:a")
    assert changed.startswith("compiled"), "it is decided otherwise now"
    assert changed != settled
    assert again == changed.replace("compiled", "found")
    flip(store)
    assert programs("measure:a") == [found], "as it was"


def test_what_was_known_before_the_first_compile_needs_one(programs) -> None:
    assert programs("measure:a", "stored:a")[1].startswith("compiled"), "another policy"
    assert programs("stored:a")[0].startswith("found")


def test_never_is_stock(programs) -> None:
    assert programs("stock:a") == ["compiled 0"]
    others = programs("never:a", "never:b", "stock:b", "always:a")
    assert others == ["found 0", "compiled 0", "found 0", "compiled 1"]
    assert programs("stock:b", "always:a") == ["found 0", "found 1"]


def test_what_is_compiled_to_be_looked_at_is_not_found_later(programs) -> None:
    looked_at = programs("always:seen-a", "always:a", "always:explained-a", "always:seen-a", "always:a")
    assert looked_at == ["compiled 1", "1", "found 1"], "and not stock's, which was looked at"


# --- the parts ----------------------------------------------------------------------------------------------

STOCK_WINS, KERNEL_WINS = (
    Measurement(STOCK, {STOCK: 1.0, "form": 2.0}),
    Measurement("form", {STOCK: 2.0, "form": 1.0}, 1.0),
)


def test_the_dependency_recorder_notes_lookups() -> None:
    known = KnownMeasurements({"one": STOCK_WINS, "other": STOCK_WINS})
    recorder = DependencyRecorder(known)
    assert recorder.get("one") == STOCK_WINS
    assert recorder.get("unknown") is None
    assert recorder.regions == ("one", "unknown")
    known.add("other", KERNEL_WINS)
    assert not recorder.has_changed()
    known.add("one", replace(STOCK_WINS, seconds={STOCK: 1.0, "form": 2.1}))
    assert not recorder.has_changed(), "the same again, a little slower"
    known.add("unknown", STOCK_WINS)
    assert recorder.has_changed()


def test_decision_dependencies_survive_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    known = KnownMeasurements({"one": STOCK_WINS})
    recorder = DependencyRecorder(known)
    recorder.get("one")
    assert decision_dependencies.read("00module") is None
    kept = DecisionDependencies.seen(recorder, "first")
    decision_dependencies.keep("00module", kept)
    assert decision_dependencies.read("00module") == kept
    assert kept.key_now(known) == "first"
    other = kept.key_now(KnownMeasurements({"one": KERNEL_WINS}))
    assert other not in ("first", kept.key_now(KnownMeasurements()))
    for damage in ("", "{}", "[]", '{"regions": 1, "state": "", "key": null}'):
        (tmp_path / decision_dependencies.FOLDER / "00module.json").write_text(damage)
        assert decision_dependencies.read("00module") is None
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", "/proc/nowhere")
    decision_dependencies.keep("00module", kept)


@pytest.mark.parametrize(("other", "claimed"), [("jit_other", "mine"), ("jit_same_", None)])
def test_threads_that_compile_modules_of_one_name(other, claimed) -> None:
    """For which of the two the hook is called nobody can tell where it is called on a third thread."""
    own, slots = cache_key.Slot(), [cache_key.Slot(), cache_key.Slot()]
    slots[0].pending = cache_key.PendingModule("jit_same", "mine", "")
    slots[1].pending = cache_key.PendingModule(other, "other's", "")
    assert cache_key.claim_pending("jit_nobody", own, slots) is None
    pending = cache_key.claim_pending("jit_same", own, slots)
    assert (pending and pending.module) == claimed
    assert cache_key.claim_pending("jit_same", own, slots) is None, "it is compiled once"
