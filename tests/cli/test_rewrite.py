"""`hlo-dispatch rewrite`: formats in, formats out, and nothing half-written."""

from __future__ import annotations

import os
import stat

import pytest

TARGET = 'custom_call_target="hlo_dispatch.onednn.convolution"'


def test_text_goes_to_stdout_and_the_table_to_stderr(run, text_file):
    done = run("rewrite", text_file, "--policy", "always")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"HloModule")
    assert TARGET in done.stdout.decode()
    assert "1 of 1 region dispatched" in done.stderr.decode()
    assert "onednn.convolution" in done.stderr.decode()
    assert "is for the XLA that optimized its input; compile it with run_backend_only" in done.stderr.decode()


def test_no_table_is_silent(run, text_file):
    assert run("rewrite", text_file, "--no-table").stderr == b""


def test_standard_input(run, optimized):
    for module in (optimized[0].encode(), optimized[1]):
        done = run("rewrite", "-", "--policy", "always", input=module)
        assert TARGET in done.stdout.decode(), done.stderr


def test_a_module_that_xla_has_not_optimized_keeps_its_epilogue(run, tmp_path):
    """jax.nn.relu is jitted: until XLA inlines it, it is a call."""
    import jax
    import numpy as np

    x = np.zeros((128, 128), "float32")
    lowered = jax.jit(lambda x, w: jax.nn.relu(x @ w)).lower(x, x)
    (tmp_path / "before.hlo").write_text(lowered.as_text(dialect="hlo"))
    done = run("rewrite", "before.hlo", "--policy", "always")
    assert "relu(x @ w)" in done.stderr.decode()
    assert "to_apply" not in done.stdout.decode()


@pytest.mark.parametrize("name", ["out.hlo", "out.txt", "out.pb"])
def test_output_formats_are_read_back_and_rewriting_again_changes_nothing(run, tmp_path, proto_file, name):
    assert run("rewrite", proto_file, "-o", name, "--policy", "always").returncode == 0
    first = (tmp_path / name).read_bytes()
    assert (TARGET in first.decode()) if name != "out.pb" else (b"hlo_dispatch.onednn.convolution" in first)
    again = run("rewrite", name, "-o", "again" + name[3:], "--policy", "always")
    assert again.returncode == 0, again.stderr
    assert "no region" in again.stderr.decode()


def test_dump_wrapper_is_unwrapped(run, tmp_path, optimized):
    """`--xla_dump_hlo_as_proto` writes an HloProto: field 1 is the module."""
    size, length = len(optimized[1]), b""
    while True:
        length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            break
    (tmp_path / "dump.hlo.pb").write_bytes(b"\x0a" + length + optimized[1])
    assert TARGET in run("rewrite", "dump.hlo.pb", "--policy", "always").stdout.decode()


@pytest.mark.parametrize("source", ["text_file", "proto_file"])
def test_unchanged_modules_are_written_too(run, tmp_path, request, source):
    path = request.getfixturevalue(source)
    for name in ("out.pb", "out.hlo"):
        assert run("rewrite", path, "--policy", "never", "-o", name).returncode == 0
        assert b"hlo_dispatch" not in (tmp_path / name).read_bytes()
        assert run("explain", name, "--policy", "always").returncode == 0


def test_an_existing_output_is_replaced_not_written_into(run, tmp_path, text_file):
    output = tmp_path / "out.hlo"
    output.write_text("old")
    output.chmod(0o640)
    kept = os.open(output, os.O_RDONLY)
    assert run("rewrite", text_file, "-o", output).returncode == 0
    assert os.read(kept, 10) == b"old"
    os.close(kept)
    assert output.read_text().startswith("HloModule")
    assert stat.S_IMODE(output.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.hlo", "out.hlo"]


def test_a_link_is_followed(run, tmp_path, text_file):
    (tmp_path / "real.hlo").write_text("old")
    (tmp_path / "link.hlo").symlink_to("real.hlo")
    assert run("rewrite", text_file, "-o", "link.hlo").returncode == 0
    assert (tmp_path / "link.hlo").is_symlink()
    assert (tmp_path / "real.hlo").read_text().startswith("HloModule")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"HloModule broken\n\nENTRY main { this is not HLO }\n", "in.hlo"),
        (b"just some words\n", "in.hlo"),
        (b"\x00\x01\x02\xff" * 50, "in.hlo"),
        (b"\x0a\xff\xff\xff\xff\x0f", "in.hlo"),
        (b"", "empty"),
        (b" \n", "empty"),
    ],
    ids=["bad-text", "prose", "noise", "cut-proto", "empty", "blank"],
)
def test_unreadable_modules_leave_the_output_alone(run, one_line, tmp_path, content, says):
    (tmp_path / "in.hlo").write_bytes(content)
    assert says in one_line(run("rewrite", "in.hlo", "-o", "new.hlo"))
    assert not (tmp_path / "new.hlo").exists()
    (tmp_path / "old.hlo").write_text("old")
    one_line(run("rewrite", "in.hlo", "-o", "old.hlo"))
    assert (tmp_path / "old.hlo").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.hlo", "old.hlo"]


def test_a_cut_module_is_refused(run, one_line, tmp_path, optimized):
    (tmp_path / "cut.pb").write_bytes(optimized[1][: len(optimized[1]) // 2])
    one_line(run("rewrite", "cut.pb", "-o", "out.pb"))
    assert not (tmp_path / "out.pb").exists()


def test_files_that_cannot_be_used(run, one_line, tmp_path, text_file):
    assert "nowhere.hlo" in one_line(run("rewrite", "nowhere.hlo"))
    assert ".pb" in one_line(run("rewrite", text_file, "-o", "out.json"))
    assert "missing" in one_line(run("rewrite", text_file, "-o", "missing/out.hlo"))
    (tmp_path / "folder.hlo").mkdir()
    assert "directory" in one_line(run("rewrite", text_file, "-o", "folder.hlo"))
    assert "folder.hlo" in one_line(run("rewrite", "folder.hlo"))


@pytest.mark.parametrize("command", ["rewrite", "explain"])
def test_unknown_policy_lists_the_valid_ones(run, one_line, text_file, command):
    line = one_line(run(command, text_file, "--policy", "fastest"))
    assert "fastest" in line
    assert all(name in line for name in ("always", "heuristic", "never"))


def test_the_environment_names_the_policy(run, one_line, text_file):
    for policy, expected in (("always", "1 of 1 region dispatched"), ("never", "0 of 1 region dispatched")):
        done = run("rewrite", text_file, env={"HLO_DISPATCH_POLICY": policy})
        assert expected in done.stderr.decode()
    done = run("rewrite", text_file, "--policy", "always", env={"HLO_DISPATCH_POLICY": "fastest"})
    assert "1 of 1 region dispatched" in done.stderr.decode()
    assert "HLO_DISPATCH_POLICY is 'fastest'" in one_line(
        run("rewrite", text_file, env={"HLO_DISPATCH_POLICY": "fastest"})
    )


def test_a_bad_table_stops_before_writing(run, one_line, tmp_path, text_file):
    (tmp_path / "mine.yaml").write_text("version: 1\nactivations:\n  cube:\n    formula: x *\n")
    line = one_line(run("rewrite", text_file, "--tables", "mine.yaml", "-o", "out.hlo"))
    assert "mine.yaml:" in line
    assert not (tmp_path / "out.hlo").exists()
