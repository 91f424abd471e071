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
    made = [entry_of(way, times) for way, times in TIMES.items()]
    assert view.speed_over(made[0], made[1], "prefill 128") == 2.0
    text = printed(made)
    assert "1000.00 (1000.00) 2.00x" in text
    assert "best peer" in text


def test_what_was_measured_before_an_interrupt_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the precision that is interrupted, too, and no worker is left."""
    open_workers: set[object] = set()
    answers = [{"tokens": [1], "first": 1.0, "weights": 0}] * 2 + [{"samples": [1.0]}, {"samples": [1.0] * CALLS}] * 3

    class FakeWorker:
        def __init__(self, _: str) -> None:
            open_workers.add(self)

        def ask(self, _: dict[str, Any]) -> dict[str, Any]:
            if not answers:
                raise KeyboardInterrupt
            return answers.pop(0)

        def close(self) -> None:
            open_workers.discard(self)

    monkeypatch.setattr(campaign, "Worker", FakeWorker)
    plan = GenerationPlan("tiny", ("scan", "unrolled"), ("jit", "frozen-int8"), "", (160,), "always")
    running = campaign.run(plan, lambda _: None)
    found = [next(running), next(running)]
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert [entry["name"] for entry in found] == ["tiny bf16 jit scan batch 1", "tiny bf16 jit unrolled batch 1"]
    assert [len(entry["samples"]["prefill 128"]) for entry in found] == [1, 2]
    assert not open_workers
    text = printed(found)
    assert "1000.00 (1000.00)" in text
    assert text.count("interrupted before all its turns were over") == 2


def test_one_that_was_interrupted_a_turn_before_its_peer_is_compared_by_the_others() -> None:
    ours, theirs = entry_of("ours", [1.0, 2.0]), entry_of("OpenVINO", [4.0])
    assert view.speed_over(ours, theirs, "prefill 128") == 4.0


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


TIMES = {"ours": [1.0, 3.0, 1.0], "llama.cpp": [2.0, 6.0, 2.0], "OpenVINO": [4.0, 12.0, 4.0]}


def entry_of(way: str, times: list[float]) -> dict[str, Any]:
    return {
        "name": way, "way": way, "form": "", "dtype": "f32", "precision": "int8", "turns": len(times), "tokens": [1],
        "samples": {"prefill 128": times}, "first": 1.0, "first_peak": 0, "weights": 0, "resident": 0, "peak": 0,
        "imports": 0, "cache": 0,
    }  # fmt: skip


def printed(entries: list[dict[str, Any]]) -> str:
    target = Console(file=io.StringIO(), width=250)
    view.print_generation(target, entries)
    return target.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
