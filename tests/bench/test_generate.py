"""`bench generate`: the smallest decoder in JAX and by its peers, one process each."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hlo_dispatch.bench.generate import campaign, in_jax, peers, view
from hlo_dispatch.bench.generate.plan import CALLS, GenerationPlan
from hlo_dispatch.bench.generate.session import first_tokens
from hlo_dispatch.bench.generate.weights import SIZES, random_prompt

pytestmark = pytest.mark.any_python


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    plan = GenerationPlan(
        "tiny", ("scan", "unrolled"), ("frozen-int8",), "", (160, 256), "heuristic", batch=2, turns=1, is_profiled=True
    )
    return list(campaign.run(plan, lambda _: None))


def test_what_is_measured(entries: list[dict[str, Any]]) -> None:
    names = [entry["name"] for entry in entries]
    assert names == ["tiny f32 frozen-int8 scan batch 2", "tiny f32 frozen-int8 unrolled batch 2"]
    for entry in entries:
        assert "problem" not in entry
        assert {name: len(samples) for name, samples in entry["samples"].items()} == {
            "prefill 128": 1, "token at 128": CALLS, "token at 128 of 256": CALLS,
        }  # fmt: skip
        assert entry["first"] > 0
        assert entry["resident"] > entry["weights"] > 10e6
        assert entry["first_peak"] > entry["weights"]
        size = SIZES["tiny"]
        assert entry["cache"] == 2 * 2 * size.layers * 160 * size.kv_heads * size.head_size * 4, "keys, values of one"
        assert entry["peak"] > entry["imports"] + entry["weights"] + entry["cache"]
        assert len(entry["tokens"]) == 2 * 17
        profile = entry["profile"]
        assert 0 < sum(profile["seconds"].values()) <= profile["recorded"]
    assert entries[0]["tokens"] == entries[1]["tokens"]


def test_how_it_is_said(entries: list[dict[str, Any]]) -> None:
    problem = {"name": "tiny f32 jit scan", "way": "jit", "problem": "no memory"}
    text = printed([*entries, problem])
    assert "the slowest form takes" in text
    assert "capacity 256" in text
    assert "of 34" in text
    assert "products" in text
    assert "tiny f32 jit scan: not measured: no memory" in text
    assert "best peer" not in text


def test_ratios_are_of_the_turns_to_the_best_peer() -> None:
    """A machine that was slow for one turn was so for all."""
    samples = {"ours": [1.0, 3.0, 1.0], "llama.cpp": [2.0, 6.0, 2.0], "OpenVINO": [4.0, 12.0, 4.0]}
    made = [
        {
            "name": way, "way": way, "form": "", "dtype": "f32", "precision": "int8", "turns": 3, "tokens": [1],
            "samples": {"token at 128": times}, "first": 1.0, "first_peak": 0, "weights": 0, "resident": 0, "peak": 0,
            "imports": 0, "cache": 0,
        }
        for way, times in samples.items()
    ]  # fmt: skip
    assert view.speed_over(made[0], made[1], "token at 128") == 2.0
    text = printed(made)
    assert "1000.00 (1000.00) 2.00x" in text
    assert "best peer" in text


def test_precisions_take_turns_and_peers_have_them_all() -> None:
    ways = ("jit", "frozen", "frozen-int4", "frozen-int4-int8", "llama.cpp")
    plan = GenerationPlan("tiny", ("scan",), ways, "", (640,), "heuristic")
    assert {precision: [contender.way for contender in group] for precision, group in plan.groups.items()} == {
        "f32": ["frozen", "llama.cpp"], "bf16": ["jit", "llama.cpp"],
        "int4": ["frozen-int4", "frozen-int4-int8", "llama.cpp"],
    }  # fmt: skip
    alone = GenerationPlan("tiny", ("scan",), ("OpenVINO",), "", (640,), "heuristic")
    assert list(alone.groups) == ["f32", "bf16", "int8", "int4"]


def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "llama.cpp", peers.Peer("in_llama_cpp", {"no_such_module": "its-package"}))
    plan = GenerationPlan("tiny", ("scan",), ("llama.cpp",), "", (160,), "heuristic", turns=1)
    found = list(campaign.run(plan, lambda _: None))
    assert len(found) == 4
    assert "tiny f32 llama.cpp batch 1: not measured: not installed: pip install its-package" in printed(found)


@pytest.mark.parametrize("peer", list(peers.PEERS))
def test_a_peer_generates_the_same_tokens_in_f32(peer: str) -> None:
    if absent := peers.missing(peer, "f32"):
        pytest.skip(absent)
    plan = GenerationPlan(
        "tiny", ("scan",), ("stock", peer), "f32", (160,), "heuristic", positions=(8,), batch=2, turns=1
    )
    ours, theirs = campaign.run(plan, lambda _: None)
    assert "problem" not in theirs
    assert theirs["tokens"] == ours["tokens"]
    assert len(theirs["samples"]["token at 8"]) == CALLS


@pytest.mark.usefixtures("_compiled_quickly")
def test_what_is_loaded_generates_the_same_tokens(tmp_path: Path) -> None:
    plan = GenerationPlan("tiny", ("carry",), ("loaded-int4",), "", (160,), "heuristic", positions=(8,))
    ((contender,),) = plan.groups.values()
    settings: dict[str, Any] = {
        "requests": list(plan.requests(contender).values()), "size": "tiny", "form": "carry", "dtype": "float32",
        "batch": 1, "capacity": 160, "policy": "heuristic",
    }  # fmt: skip
    file = in_jax.write(tmp_path, way=contender.way, **settings)
    sessions = [in_jax.make(way="frozen-int4", **settings), in_jax.make(way=contender.way, file=str(file), **settings)]
    for session in sessions:
        session.load()
    frozen, loaded = map(first_tokens, sessions)
    assert contender.precision == "int4"
    assert loaded == frozen
    assert sessions[1].weight_bytes == sessions[0].weight_bytes


def test_a_longer_prompt_begins_like_a_shorter_one() -> None:
    size = SIZES["tiny"]
    assert np.array_equal(random_prompt(size, 3, 50)[:, :20], random_prompt(size, 3, 20))


def printed(entries: list[dict[str, Any]]) -> str:
    target = Console(file=io.StringIO(), width=250)
    view.print_generation(target, entries)
    return target.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
