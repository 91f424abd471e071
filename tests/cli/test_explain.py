"""`hlo-dispatch explain`: the report for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_table(run, text_file):
    done = run("explain", text_file, "--policy", "always")
    assert done.returncode == 0
    assert done.stderr == b""
    printed = done.stdout.decode()
    assert "relu" in printed
    assert "f32[1,16,16,16]" in printed
    assert "onednn.convolution" in printed


def test_json(run, proto_file):
    report = json.loads(run("explain", proto_file, "--json", "--policy", "always").stdout)
    (region,) = report["regions"]
    assert region["kernel"] == "onednn.convolution"
    assert region["refusal"] is None
    assert region["implementation"]
    assert region["attributes"]["weights_dims"] == [16, 8, 3, 3]
    assert region["covered"]
    assert report["instructions"] > 3
    assert report["seconds"] > 0


def test_never_says_why(run, text_file):
    report = json.loads(run("explain", text_file, "--json", "--policy", "never").stdout)
    (region,) = report["regions"]
    assert region["kernel"] is None
    assert region["reason"] or region["refusal"]["sentence"]
    assert "left to XLA" in run("explain", text_file, "--policy", "never").stdout.decode()


def test_missing_library_leaves_everything_to_xla(run, text_file, tmp_path):
    (tmp_path / "libdnnl.so.3").write_text("not a library")
    environment = {"HLO_DISPATCH_ONEDNN_LIBRARY": str(tmp_path / "libdnnl.so.3")}
    report = json.loads(run("explain", text_file, "--json", "--policy", "always", env=environment).stdout)
    (region,) = report["regions"]
    assert region["kernel"] is None
    assert region["refusal"]["code"] == "library-missing"


def test_a_closed_pipe_is_no_error(text_file):
    command = Path(sys.executable).with_name("hlo-dispatch")
    done = subprocess.run(
        f"{command} rewrite {text_file} --no-table | true", shell=True, capture_output=True, check=False
    )
    assert done.stderr == b""
