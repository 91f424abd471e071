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


def test_the_details_of_a_region(run, text_file):
    printed = run("explain", text_file, "--policy", "always").stdout.decode()
    assert "weights f32 16x8x3x3" in printed
    assert "conv_general_dilated (" in printed
    assert "the value is needed in memory" in printed


def test_the_nearest_miss_of_an_unknown_function(run, tmp_path):
    (tmp_path / "cube.hlo").write_text("""HloModule cube
ENTRY e {
  x = f32[4,8]{1,0} parameter(0)
  w = f32[8,16]{1,0} parameter(1)
  dot = f32[4,16]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  tanh = f32[4,16]{1,0} tanh(dot)
  shrunk = f32[4,16]{1,0} subtract(dot, tanh)
  ROOT copy = f32[4,16]{1,0} copy(shrunk)
}""")
    (region,) = json.loads(run("explain", "cube.hlo", "--json", "--policy", "always").stdout)["regions"]
    assert region["stopped_at"] == "shrunk"
    assert "equals no activation of the table: closest is" in region["stopped_because"]


def test_profile(run, text_file):
    report = json.loads(run("explain", text_file, "--json", "--profile", "--policy", "always").stdout)
    found = {(row["kind"], row["name"]): row for row in report["profile"]}
    used = {"anchor": "convolution", "binary": "add", "activation": "relu", "kernel": "onednn.convolution"}
    for entry in used.items():
        row = found[entry]
        assert row["hits"] == row["tries"] >= 1
        assert 0 < row["hit_seconds"] <= row["seconds"] < 1
        file, _, line = row["place"].rpartition(":")
        assert row["name"] in Path(file).read_text().splitlines()[int(line) - 1]
    printed = run("explain", text_file, "--profile").stdout.decode()
    assert "never tried" in printed
    assert "when it hit" in printed


def test_the_passes_are_listed(run, text_file):
    printed = run("explain", text_file, "--policy", "always", "--passes").stdout.decode()
    listed = [line.split("  ")[0] for line in printed.splitlines() if line.endswith(" ms")]
    assert listed[0] == "parse"
    assert listed.index("match and select") < listed.index("lower") < listed.index("call grouping")
    report = json.loads(run("explain", text_file, "--json", "--policy", "always").stdout)
    assert [one["name"] for one in report["passes"]] == listed
    (lowered,) = (one for one in report["passes"] if one["name"] == "lower")
    assert lowered["changed"]
    assert lowered["seconds"] == report["stages"]["lower"]
