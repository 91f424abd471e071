"""`HLO_DISPATCH_REPORT`: the report of a whole process, for a program without our code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from environment import clean_environment
from hlo_dispatch.jax_plugin.at_exit import accumulated_reports
from hlo_dispatch.jax_plugin.at_exit.accumulated_reports import AccumulatedReports
from hlo_dispatch.report import Region, Report
from warm import run_python

LAYER = """
import os, subprocess, sys
import jax, jax.numpy as jnp
jax.jit(lambda x, w: jax.nn.relu(x @ w)).lower(jnp.ones((512, 512)), jnp.ones((512, 512))).compile()
"""
INSTALLED = f"import hlo_dispatch; hlo_dispatch.install(policy='always')\n{LAYER}"
MANY = """
import jax
for number in range(80):
    jax.jit(lambda x: x + number).lower(1.0).compile()
"""
# A child that ends before the other one begins has left an older file to that one: they run at the same time.
CHILD = f"""
{LAYER}
print("compiled", flush=True)
sys.stdin.read()
"""
CHILDREN = f"""
{LAYER}
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
children = [subprocess.Popen([sys.executable, "-c", {CHILD!r}], **pipes) for _ in range(2)]
assert [child.stdout.readline() for child in children] == [b"compiled\\n"] * 2
for child in children:
    child.stdin.close()
assert [child.wait() for child in children] == [0, 0]
"""
# JAX itself does not survive a fork once it runs; a program that forks before it does.
FORKED = """
import os, sys
from hlo_dispatch.jax_plugin import at_exit
from hlo_dispatch.report import Report
at_exit.begin(dict)
at_exit.add(Report("parent"))
for is_busy in (False, True):
    if not os.fork():
        if is_busy:
            at_exit.add(Report("child"))
        sys.exit(0)
    assert os.wait()[1] == 0
"""


def program(code: str, folder: Path, name: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a program that is to leave its report in the folder under a name."""
    variables = {"HLO_DISPATCH": "1", "HLO_DISPATCH_POLICY": "always", "HLO_DISPATCH_REPORT": name} | environment
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"
    done = run_python(quiet + code, environment=clean_environment(**variables), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("code", "door"), [(LAYER, "1"), (INSTALLED, "0")], ids=["environment", "install"])
def test_written_at_exit_with_one_line(tmp_path: Path, code: str, door: str) -> None:
    done = program(code, tmp_path, "out.json", HLO_DISPATCH=door)
    (line,) = done.stderr.splitlines()
    assert "1 of 1 region dispatched" in line
    assert "in the pass" in line
    assert str(tmp_path / "out.json") in line
    written = json.loads((tmp_path / "out.json").read_text())
    (region,) = [region for module in written["modules"] for region in module["regions"]]
    assert (region["formula"], region["kernel"]) == ("relu(x @ w)", "onednn.matmul")
    assert written["totals"]["modules"] == written["statistics"]["modules"] == len(written["modules"])
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"], "nothing else is left behind"


def test_every_module(tmp_path: Path) -> None:
    """Not only as many as `reports()` keeps."""
    program(MANY, tmp_path, "out.json")
    assert len(json.loads((tmp_path / "out.json").read_text())["modules"]) >= 80


def test_page(tmp_path: Path) -> None:
    program(LAYER, tmp_path, "out.html")
    page = (tmp_path / "out.html").read_text()
    assert "<td>relu(x @ w)</td>" in page
    assert "onednn.matmul" in page
    assert "http" not in page, "it loads nothing"


def test_processes_do_not_write_over_each_other(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("of the last run")
    os.utime(tmp_path / "out.json", (0, 0))
    done = program(CHILDREN, tmp_path, "out.json")
    reports = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert len(reports) == 3, "two children and the program itself"
    assert "out.json" in reports, "the last run's is replaced"
    assert len({report["process"] for report in reports.values()}) == 3
    assert len(done.stderr.splitlines()) == 3
    for name, report in reports.items():
        assert name in ("out.json", f"out.{report['process']}.json")
        assert name in done.stderr


def test_forked_processes_tell_their_own(tmp_path: Path) -> None:
    program(FORKED, tmp_path, "out.json")
    reports = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert len(reports) == 2, "who compiled nothing says nothing"
    assert [module["module"] for module in reports.pop("out.json")["modules"]] == ["parent"]
    (report,) = reports.values()
    assert [module["module"] for module in report["modules"]] == ["child"]


def test_number_where_the_name_says_so(tmp_path: Path) -> None:
    program(LAYER, tmp_path, "run-{pid}.json")
    (path,) = tmp_path.iterdir()
    assert path.name == f"run-{json.loads(path.read_text())['process']}.json"


@pytest.mark.parametrize("name", ["nowhere/out.json", "out.txt", "/proc/out.html", "."])
def test_an_impossible_name_is_one_line_and_the_program_runs(tmp_path: Path, name: str) -> None:
    done = program(LAYER + "print('ran', file=sys.stderr)", tmp_path, name)
    line, ran = done.stderr.splitlines()
    assert line.startswith("hlo-dispatch: no report will be written, HLO_DISPATCH_REPORT=")
    assert ran == "ran", "it is said at the start"
    assert not list(tmp_path.iterdir())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulated_reports, "MOST_BYTES", 10_000)
    accumulated = AccumulatedReports()
    region = Region("dot", "main", "dot", "x @ w", "k", "i", {}, ("dot",), "", "", "why", None, "f32[2]", saved=1e-3)
    for number in range(200):
        accumulated.add(Report(f"module {number}", (region,), seconds=0.5, saved=1e-3))
    accumulated.add_failure("ModuleError: no module")
    accumulated.add(Report("half", failure="constants could not be preprocessed"))
    assert accumulated.failures == ["ModuleError: no module", "constants could not be preprocessed"]
    reports = list(accumulated.reports())
    assert 0 < len(reports) < 200
    assert len(reports) + accumulated.left_out == 201
    assert accumulated.totals.modules == 202, "what is not kept is counted"
    assert (accumulated.totals.dispatched, accumulated.totals.seconds, accumulated.totals.failures) == (200, 100.0, 2)
    assert accumulated.totals.saved == pytest.approx(0.2)
