"""`hlo-dispatch profile FILE`: a module in either form, from a file or from standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

QUICK = ("--seconds", "0.01", "--runs", "2", "--policy", "always")


@pytest.mark.parametrize("form", ["text_file", "proto_file"])
def test_a_module_in_a_file(run, request: pytest.FixtureRequest, form: str) -> None:
    path: Path = request.getfixturevalue(form)
    # A process of its own for one of them is enough to see what XLA says when it is loaded.
    alone = {"TF_CPP_MIN_LOG_LEVEL": None} if form == "proto_file" else {}
    done = run("profile", path, *QUICK, "--json", env=alone)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b"", "XLA's own lines are nobody's business here"
    (region,) = json.loads(done.stdout)["regions"]
    assert (region["formula"], region["kernel"]) == ("relu(conv(x, w) + b)", "onednn.convolution")


@pytest.mark.parametrize("form", [0, 1], ids=["text", "binary"])
def test_a_module_from_standard_input(run, optimized, form: int) -> None:
    module = optimized[form].encode() if form == 0 else optimized[form]
    done = run("profile", "-", *QUICK, input=module, env={"COLUMNS": None})
    assert done.returncode == 0, done.stderr.decode()
    assert "onednn.convolution" in done.stdout.decode()


@pytest.mark.parametrize("content", [b"HloModule broken\n\nENTRY main { this is not HLO }\n", b"\x0a\xff\xff\xff\x0f"])
def test_a_file_that_is_no_module_is_named(run, one_line, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "wrong.hlo").write_bytes(content)
    assert "wrong.hlo: " in one_line(run("profile", "wrong.hlo", *QUICK))
