"""`hlo-dispatch patterns`: the table is listed, shown and checked; mistakes come with their place."""

from __future__ import annotations

import pytest

CUBE = """\
version: 1
activations:
  cube:
    formula: x * x * x
    onednn: {algorithm: pow, alpha: 1, beta: 3}
    origin: a test
"""


def test_list_knows_the_first_entries(run):
    printed = run("patterns", "list").stdout.decode()
    for name in (
        "convolution",
        "dot",
        "add",
        "multiply",
        "relu",
        "clip",
        "tanh",
        "sigmoid",
        "swish",
        "gelu_tanh",
        "gelu_erf",
        "elu",
        "leaky_relu",
    ):
        assert f" {name} " in printed, name


def test_show(run, one_line):
    printed = run("patterns", "show", "clip").stdout.decode()
    assert "clip(x, low, high)" in printed
    assert "activations.yaml:" in printed
    assert "relu" in one_line(run("patterns", "show", "rleu"))


def test_own_tables(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(CUBE)
    done = run("patterns", "check", "mine.yaml")
    assert (done.returncode, done.stdout) == (0, b"OK: 1 entry in mine.yaml\n")
    assert " cube " in run("patterns", "list", "--tables", "mine.yaml").stdout.decode()
    assert "x * x * x" in run("patterns", "show", "cube", "--tables", "mine.yaml").stdout.decode()


@pytest.mark.parametrize(
    ("line", "old", "new", "says"),
    [
        (4, "formula:", "formular:", "formula"),
        (4, "x * x * x", "x * (x", "formula"),
        (4, "x * x * x", "x * y", "'y'"),
        (5, "algorithm: pow", "algorithm: cube", "cube"),
        (3, "cube:", "relu:", "relu"),
        (2, "activations:", "activation:", "activations"),
        (5, "{algorithm: pow", "{algorithm pow", ""),
    ],
    ids=["unknown-key", "bad-formula", "unknown-name", "unknown-algorithm", "duplicate", "unknown-section", "bad-yaml"],
)
def test_mistakes_have_a_place_and_advice(run, one_line, tmp_path, line, old, new, says):
    (tmp_path / "mine.yaml").write_text(CUBE.replace(old, new, 1))
    message = one_line(run("patterns", "check", "mine.yaml"))
    assert f"mine.yaml:{line}:" in message, message
    assert says in message


def test_unknown_kernel(run, one_line, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "version: 1\nanchors:\n  again:\n    opcode: dot\n    kernel: onednn.matmull\n    formula: a . b\n"
        "    dtypes: [f32]\n    origin: a test\n    numerics:\n      f32: {tolerance: 1e-5, why: order}\n"
    )
    message = one_line(run("patterns", "check", "mine.yaml"))
    assert "mine.yaml:5:" in message, message
    assert "onednn.matmul" in message, message


ANCHOR = """\
version: 1
anchors:
  again:
    opcode: dot
    kernel: onednn.matmul
    formula: a . b
    dtypes: [f32]
    epilogues: {activations: [relu], binaries: [], longest_chain: 1}
    origin: a test
    priority: 7
    numerics:
      f32: {tolerance: 1e-5, why: order}
"""


def test_an_anchor_is_shown_with_its_op_kind_and_epilogue(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(ANCHOR)
    assert run("patterns", "check", "mine.yaml").stdout == b"OK: 1 entry in mine.yaml\n"
    shown = run("patterns", "show", "again", "--tables", "mine.yaml").stdout.decode()
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    read = "op kind product: every other product; the default of an entry that names none"
    for line in (read, "types f32", "epilogue relu (at most 1)", "priority 7"):
        assert line in lines, shown
    assert "epilogue nothing" in " ".join(run("patterns", "show", "weights_gradient").stdout.decode().split())


def test_an_anchor_that_could_be_another_is_refused(run, one_line, tmp_path):
    (tmp_path / "mine.yaml").write_text(ANCHOR.replace("priority: 7", "priority: 0"))
    message = one_line(run("patterns", "check", "mine.yaml"))
    assert "mine.yaml:3:" in message, message
    assert "'dot'" in message, message


def test_a_missing_file(run, one_line):
    assert "nowhere.yaml" in one_line(run("patterns", "check", "nowhere.yaml"))
