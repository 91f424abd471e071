"""Plugin entry point: `HLO_DISPATCH=1` and its companions, for a program without our code."""

from __future__ import annotations

import subprocess

import pytest

from environment import clean_environment
from warm import run_python

PROGRAM = """
import jax, numpy as np
ones = np.ones((512, 512), "float32")
compiled = jax.jit(lambda x, w: jax.nn.relu(x @ w)).lower(ones, ones).compile()
is_dispatched = "hlo_dispatch.onednn.matmul" in compiled.as_text()
print("dispatched" if is_dispatched else "stock", np.asarray(compiled(ones, ones))[0, 0])
"""


def program(**environment: str) -> subprocess.CompletedProcess:
    """Run the program with these variables added."""
    clean = clean_environment()
    done = run_python(PROGRAM, environment=clean | environment)
    done.check_returncode()
    return done


def test_closed_by_default():
    assert program().stdout == "stock 512.0\n"


@pytest.mark.parametrize("word", ["1", "true", "Yes", "on"])
def test_open(word: str):
    done = program(HLO_DISPATCH=word, HLO_DISPATCH_POLICY="always")
    assert (done.stdout, done.stderr) == ("dispatched 512.0\n", "")


@pytest.mark.parametrize("word", ["0", "FALSE", "no", "off", ""])
def test_closed(word: str):
    done = program(HLO_DISPATCH=word, HLO_DISPATCH_POLICY="always")
    assert (done.stdout, done.stderr) == ("stock 512.0\n", "")


def test_neither_open_nor_closed_is_said():
    done = program(HLO_DISPATCH="ja")
    assert done.stdout == "stock 512.0\n"
    (line,) = done.stderr.splitlines()
    assert "HLO_DISPATCH is 'ja'" in line
    assert "not installed" in line


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"HLO_DISPATCH_POLICY": "fastest"}, "measure, stored, heuristic, always, never"),
        ({"HLO_DISPATCH_TABLES": "nowhere.yaml"}, "nowhere.yaml:1:1: there is no such table"),
        ({"HLO_DISPATCH_STRICT": "ja"}, "HLO_DISPATCH_STRICT is 'ja'"),
        ({"HLO_DISPATCH_KEEP_MEMORY": "ja"}, "HLO_DISPATCH_KEEP_MEMORY is 'ja'"),
    ],
    ids=["policy", "table", "strict", "memory"],
)
def test_mistakes_are_one_line_and_stock_runs(environment, says):
    done = program(HLO_DISPATCH="1", **environment)
    assert done.stdout == "stock 512.0\n"
    (line,) = done.stderr.splitlines()
    assert says in line


def test_a_missing_library_leaves_stock():
    done = program(HLO_DISPATCH="1", HLO_DISPATCH_POLICY="always", HLO_DISPATCH_ONEDNN_LIBRARY="/nowhere/libdnnl.so.3")
    assert done.stdout == "stock 512.0\n"
    assert "Traceback" not in done.stderr
