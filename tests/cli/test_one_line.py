"""Usage errors are one line; output into a pipe is not cut."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rewrite",), "Missing argument 'FILE'; see hlo-dispatch rewrite --help"),
        (("rewrite", "in.hlo", "--polic", "always"), "--polic"),
        (("no-such-command",), "no-such-command"),
        (("cache", "no-such-command"), "see hlo-dispatch cache --help"),
        (("tune", "in.hlo", "--seconds", "soon"), "--seconds"),
        (("tune", "in.hlo", "--seconds", "0"), "0.1"),
        (("doctor", "surplus"), "surplus"),
        (("bench", "--no-such-option"), "--no-such-option"),
        (("patterns", "show"), "see hlo-dispatch patterns show --help"),
    ],
)
def test_usage_errors(run, one_line, arguments: tuple[str, ...], says: str) -> None:
    assert says in one_line(run(*arguments))


@pytest.mark.parametrize("arguments", [(), ("cache",), ("patterns",)])
def test_nothing_more_to_do_is_the_help(run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr == b""
    assert b"Usage:" in done.stdout


def test_the_users_file_is_named(run, one_line, tmp_path: Path, text_file: Path) -> None:
    """Not the temporary one beside it that would have been renamed."""
    store = {"HLO_DISPATCH_CACHE_DIR": str(tmp_path / "store")}
    assert one_line(run("cache", "export", "missing/all.json", env=store)).startswith(
        "hlo-dispatch: missing/all.json: "
    )
    (tmp_path / "wrong.json").write_text("{}")
    assert one_line(run("cache", "import", "wrong.json", env=store)).startswith("hlo-dispatch: wrong.json: ")
    line = one_line(run("explain", text_file, "--html", "missing/page.html"))
    assert line.startswith("hlo-dispatch: missing/page.html: ")
    line = one_line(run("rewrite", text_file, "-o", "missing/out.hlo"))
    assert line.startswith("hlo-dispatch: missing/out.hlo: ")


def test_a_pipe_has_no_width(run, text_file: Path) -> None:
    """Where nobody says how wide a line may be, a sentence is not broken at 80 columns."""
    piped = {"COLUMNS": None}
    listed = run("patterns", "list", env=piped).stdout.decode().splitlines()
    (line,) = [line for line in listed if " convolution " in line]
    assert "weights[o, i, k]" in line
    assert "onednn.convolution" in line
    report = run("rewrite", text_file, "--policy", "heuristic", "-o", "out.hlo", env=piped).stderr.decode()
    assert "multiply-adds are too few to pay for a library call\n" in report.replace(" \n", "\n")
    explained = run("explain", text_file, env=piped).stdout.decode()
    assert max(map(len, explained.splitlines())) < 200, "nor is it filled up with blanks"
    narrow = run("patterns", "list", env={"COLUMNS": "60"}).stdout.decode()
    assert max(map(len, narrow.splitlines())) <= 60


def test_what_xla_says_of_its_devices_is_not_shown(run, text_file: Path, tmp_path: Path) -> None:
    store = {"HLO_DISPATCH_CACHE_DIR": str(tmp_path / "store")}
    quiet = run("tune", "--validate-only", text_file, env=store | {"TF_CPP_MIN_LOG_LEVEL": None})
    assert "pjrt" not in quiet.stderr.decode()
    asked = run("tune", "--validate-only", text_file, env=store | {"TF_CPP_MIN_LOG_LEVEL": "0"})
    assert "pjrt" in asked.stderr.decode(), "who asks for them has them"


def test_doctor_tries_the_cache_folder(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("doctor", env={"HLO_DISPATCH_CACHE_DIR": str(tmp_path / "file" / "store"), "COLUMNS": None})
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[-1] == "missing: writable cache folder"
    (line,) = [line for line in done.stdout.decode().splitlines() if "writable cache folder" in line][:1]
    assert "HLO_DISPATCH_CACHE_DIR" in line
