"""What printing a report shows, and what a notebook does."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import jax.numpy as jnp
import pytest

import hlo_dispatch
from hlo_dispatch.jax_plugin.tuning_result import Tuned, TunedRegion
from hlo_dispatch.report import Report


class _Cells(HTMLParser):
    """Texts of the cells of a fragment, row by row; fails on what is not closed."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(fragment)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def report() -> Report:
    """Of two dispatched products that differ in nothing, and a third that no kernel takes."""

    def program(x: Any, w: Any, i: Any) -> Any:
        return jnp.tanh(x @ w), jnp.tanh((x + 1) @ w), i @ i

    with hlo_dispatch.enabled(policy="always"):
        return hlo_dispatch.explain(program, jnp.ones((4, 8)), jnp.ones((8, 8)), jnp.ones((4, 4), "uint32"))


TUNED = Tuned(
    report=Report("jit_f", instructions=7),
    regions=(
        TunedRegion(
            2, "relu(x @ w)", "f32[4,8]", "onednn.matmul", "plain", {"stock": 2e-3, "plain": 1e-3, "packed": 3e-3},
            gain=1e-3, noise=1e-4, differences={}, refused={},
        ),
    ),
    seconds=1.5,
    left=1,
    reproducers=("x < y",),
)  # fmt: skip


def test_a_report_prints_as_tables(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    dispatched, left, said = str(report).split("\n\n")
    title, _, row = dispatched.splitlines()
    assert title.split() == ["dispatched", "region", "result", "kernel", "and", "its", "implementation"]
    assert row.startswith("2   tanh(x @ w)")
    assert "f32[4,8]" in row
    assert "onednn.matmul" in row
    assert "left to XLA" in left
    assert "dtype-unsupported: " in left
    assert said.startswith(f"{report.module}: 2 of 3 regions dispatched")
    assert "\x1b" not in str(report)
    assert all(line == line.rstrip() for line in str(report).splitlines())


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_narrow_terminal_wraps(columns: int, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for shown in (str(report), str(TUNED)):
        assert max(map(len, shown.splitlines())) <= columns
    assert "f32[4,8]" in str(report), "a shape stays in one piece"


def test_a_notebook_shows_the_same(report: Report) -> None:
    fragment = report._repr_html_()
    first, row, *others = _Cells(fragment).rows
    assert first == ["", "dispatched region", "result", "kernel and its implementation"]
    assert row[2] == "f32[4,8]"
    assert ["", "left to XLA", "result", "why"] in others
    assert f"<p>{report.module}: 2 of 3 regions dispatched" in fragment


def test_what_tune_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = str(TUNED)
    row = next(line for line in text.splitlines() if "relu(x @ w)" in line)
    assert row.split() == ["2", "relu(x", "@", "w)", "f32[4,8]", "2.000", "1.000", "plain", "plain", "50%", "±", "5%"]
    assert "wrong result: x < y" in text
    assert text.endswith("2 ms saved by a run, all regions together; 1 not reached: left to the cost model")
    fragment = TUNED._repr_html_()
    assert "wrong result: x &lt; y" in fragment
    heads, row = _Cells(fragment).rows
    assert heads == ["", "region", "result", "stock ms", "with the kernel, ms", "chosen", "margin"]
    assert row == ["2", "relu(x @ w)", "f32[4,8]", "2.000", "1.000 plain3.000 packed", "plain", "50% ± 5%"]


def test_an_empty_report() -> None:
    assert str(Report("jit_f")) == "jit_f: no region that a kernel could take; 0 instructions; pass 0 µs"
    assert _Cells(Report("jit_f")._repr_html_()).rows == []


def test_a_freeze_report_in_a_notebook() -> None:
    fast = hlo_dispatch.freeze(lambda w, x: jnp.tanh(x @ w), jnp.ones((8, 8)))
    assert "nothing is preprocessed yet" in fast.report._repr_html_()
    fast(jnp.ones((2, 8)))
    heads, *rows = _Cells(fast.report._repr_html_()).rows
    assert heads == ["kind", "origin", "shape", "size"]
    assert rows
    assert all(cell in str(fast.report) for row in rows for cell in row)
