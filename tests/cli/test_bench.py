"""`hlo-dispatch bench` as a new user types it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from environment import clean_environment

QUICK = ("--seconds", "0.01", "--sides", "stock,always")
SHAPE = ("conv_bias_relu", "--shape", "n=1,c=8,h=6,w=6,k=8,r=3")


def without_peak(path: Path) -> Path:
    """A results file of this machine whose peak is known: measuring it takes longer than the tests."""
    from hlo_dispatch.bench.result_files import Results

    results = Results.open(path, "patterns")
    results.header["peak"] = {"arithmetic": {"f32": 1e11}, "bandwidth": 1e10}
    results.write()
    return path


def test_a_shape_of_ones_own(run, tmp_path: Path) -> None:
    done = run("bench", *SHAPE, *QUICK, "-o", without_peak(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr.decode()
    assert b"conv_bias_relu n=1,c=8,h=6,w=6,k=8,r=3 f32" in done.stdout
    assert b"1 of 1" in done.stderr
    assert b"r.json" in done.stderr


def test_json_has_every_sample(run, tmp_path: Path) -> None:
    done = run("bench", *SHAPE, *QUICK, "--json", "-o", without_peak(tmp_path / "r.json"))
    (entry,) = json.loads(done.stdout)["results"]
    assert len(entry["sides"]["stock"]["samples"]) >= 5
    assert entry["kernels"] == ["onednn.convolution"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("conv_bais",), "conv_bais"),
        (("conv_bias_relu", "--shape", "n=1"), "lacks c"),
        (("conv_bias_relu", "--dtype", "f8"), "f8"),
        (("conv_bias_relu", "--sides", "tvm"), "tvm"),
        (("--tag", "slow"), "slow"),
    ],
)
def test_mistakes_are_one_line(run, one_line, arguments: tuple[str, ...], said: str) -> None:
    assert said in one_line(run("bench", *arguments))


def test_the_list(run) -> None:
    done = run("bench", "cases", "--tag", "ci")
    assert done.returncode == 0
    assert b"depthwise_conv_bias_clip" in done.stdout


def test_a_time_limit_keeps_what_was_measured_and_leaves_no_worker(tmp_path: Path) -> None:
    """SIGTERM does what Ctrl-C does."""
    path = without_peak(tmp_path / "r.json")
    command = Path(sys.executable).with_name("hlo-dispatch")
    process = subprocess.Popen(
        [command, "bench", "--tag", "ci", "--seconds", "0.5", "--sides", "stock", "-o", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    deadline = time.monotonic() + 120
    while not json.loads(path.read_text())["results"]:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert workers
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors.decode()
    assert b"conv_bias_relu" in out
    assert b"--resume" in errors
    assert b"Traceback" not in errors
    assert not any(Path("/proc", worker).exists() for worker in workers)
