"""The demonstration runs, and a missing framework costs only its own part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environment import clean_environment
from warm import run_python

COMMAND = Path(sys.executable).with_name("hlo-dispatch")
# The same models on smaller inputs: what is shown of them is the same.
SMALL = """
import sys
from dataclasses import replace
from functools import partial
from hlo_dispatch.cli.main import main
from hlo_dispatch.demo.models import MODELS

small = {"resnet50": {"size": 64}, "bert-layer": {"tokens": 32}, "gaussian-process": {"points": 500}}
for name, options in small.items():
    MODELS[name] = replace(MODELS[name], build=partial(MODELS[name].build, **options))
sys.argv = ["hlo-dispatch", "demo", "--seconds", "0.1"]
main()
"""


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run `hlo-dispatch demo` at a log's width."""
    return subprocess.run(
        [COMMAND, "demo", "--seconds", "0.1", *arguments],
        env=os.environ | {"COLUMNS": "120"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_demo_shows_the_small_example_and_a_model_each():
    done = run_python(SMALL, environment=clean_environment(COLUMNS="120"), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        'custom_call_target="hlo_dispatch.onednn.convolution"',
        "left exactly as XLA made it",
        "Keras ResNet50",
        "Flax BERT encoder layer",
        "Gaussian process regression",
        "largest difference from stock",
        "speed-up",
        "weights frozen",
    ):
        assert words in done.stdout, words
    assert done.stdout.count("weights frozen") == 1, "ResNet50's"
    assert "measuring" in done.stderr


def test_a_missing_framework_is_said_and_the_rest_goes_on(tmp_path):
    # A module that fails to import as an absent one does.
    (tmp_path / "keras.py").write_text("raise ModuleNotFoundError(\"No module named 'keras'\", name='keras')\n")
    done = demo("resnet50", "bert-layer", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "keras is not installed; get it with: pip install 'hlo-dispatch[models]'" in done.stdout
    assert "Flax BERT encoder layer" in done.stdout
    assert "speed-up" in done.stdout
    assert "Traceback" not in done.stderr


def test_unknown_models_are_answered_with_the_list():
    done = demo("resnet51")
    assert done.returncode == 2
    assert "resnet50" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_leaving_everything_to_xla_by_choice_is_no_failure() -> None:
    from dataclasses import replace

    import hlo_dispatch
    from hlo_dispatch.demo.run import _is_left_by_choice
    from hlo_dispatch.errors import Refusal
    from hlo_dispatch.report import Report

    text = "ENTRY e { x = f32[4,4]{1,0} parameter(0)\n ROOT d = f32[4,4]{1,0} dot(x, x), "
    text = "HloModule m\n" + text + "lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    report = hlo_dispatch.rewrite(text, policy="never").report
    assert _is_left_by_choice(report)
    missing = replace(report.regions[0], refusal=Refusal("library-missing", "it is not there"))
    assert not _is_left_by_choice(replace(report, regions=(missing,)))
    assert not _is_left_by_choice(Report("nothing to see"))
