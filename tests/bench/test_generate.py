"""`bench generate`: the smallest decoder in each form, one process each."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hlo_dispatch.bench.generate import campaign, view


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    plan = campaign.GenerationPlan(
        "tiny", ("scan", "unrolled"), ("frozen-int8",), "", (160, 256), "heuristic", turns=1, is_profiled=True
    )
    return list(campaign.run(plan, lambda _: None))


def test_what_is_measured(entries: list[dict[str, Any]]) -> None:
    assert [entry["name"] for entry in entries] == ["tiny f32 frozen-int8 scan", "tiny f32 frozen-int8 unrolled"]
    for entry in entries:
        assert "problem" not in entry
        assert {name: len(samples) for name, samples in entry["samples"].items()} == {
            "prefill 128": 1, "token at 128": campaign.CALLS, "token at 128 of 256": campaign.CALLS,
        }  # fmt: skip
        assert entry["first"] > 0
        assert entry["resident"] > entry["weights"] > 10e6
        profile = entry["profile"]
        assert 0 < sum(profile["seconds"].values()) <= profile["recorded"]
    assert entries[0]["tokens"] == entries[1]["tokens"]


def test_how_it_is_said(entries: list[dict[str, Any]]) -> None:
    target = Console(file=io.StringIO(), width=200)
    problem = {"name": "tiny f32 jit scan", "way": "jit", "problem": "no memory"}
    view.print_generation(target, [*entries, problem])
    text = target.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "the slowest form takes" in text
    assert "capacity 256" in text
    assert "of 17" in text
    assert "products" in text
    assert "tiny f32 jit scan: not measured: no memory" in text
