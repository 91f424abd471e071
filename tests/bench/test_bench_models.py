"""Whole models against their peers: what is kept of each process, and that both frameworks build the same model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hlo_dispatch.bench.models import campaign, peer_process
from hlo_dispatch.bench.models.catalogue import MODELS, jobs
from hlo_dispatch.bench.models.view import latency
from hlo_dispatch.bench.pattern import CaseError
from hlo_dispatch.bench.result_files import Results

pytestmark = pytest.mark.any_python


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results.open(tmp_path / "models.json", "small-models")


def test_a_tiny_model_by_two_peers(results: Results) -> None:
    pytest.importorskip("flax")
    pytest.importorskip("transformers")
    chosen = jobs(("vit",), ("f32",), (1,))
    settings = {"rounds": 1, "seconds": 0.01, "tuning": 0, "policy": "always", "options": {"layers": 1}}
    (entry,) = campaign.run(chosen, results, peers=("stock", "ours"), **settings)
    assert entry["failed"] == {}
    for peer in ("stock", "ours"):
        (record,) = entry["peers"][peer]
        assert len(record["samples"]) >= 3
        assert record["compile"] > 0
        assert record["first_call"] > 0
        # At least the weights of one layer and the embeddings.
        assert record["peak_memory"] > 30e6
    assert entry["peers"]["ours"][0]["dispatched"] > 0
    said: list[str] = []
    campaign.run(chosen, results, peers=("stock", "ours"), resume=True, say=said.append, **settings)
    assert said == []


def test_a_peer_that_fails_is_said_and_the_rest_goes_on(results: Results) -> None:
    chosen = jobs(("vit",), ("f32",), (1,))
    (entry,) = campaign.run(chosen, results, peers=("stock",), rounds=2, seconds=0.01, options={"no_such_option": 1})
    assert "no_such_option" in entry["failed"]["stock"]
    assert entry["peers"]["stock"] == []
    assert latency([]) is None


@pytest.mark.parametrize("what", ["", '{"samples": []}'])
def test_a_peer_that_ends_in_its_turn_is_said(results: Results, monkeypatch, tmp_path: Path, what: str) -> None:
    """The other one's record is kept."""
    (tmp_path / "peer.py").write_text(f"""
import json, sys
print(json.dumps({{"compile": 1.0, "first_call": 1.0}}), flush=True)
for line in sys.stdin:
    if sys.argv[1] == "ours":
        print({what!r}, flush=True)
        sys.exit("no more of it")
    print(json.dumps({{"samples": [float(line)]}}), flush=True)
print(json.dumps({{"peak_memory": 1, "memory_before": 1}}), flush=True)
""")
    monkeypatch.setattr(peer_process, "COMMAND", (sys.executable, str(tmp_path / "peer.py")))
    chosen = jobs(("vit", "unet"), ("f32",), (1,))
    entries = campaign.run(chosen, results, peers=("stock", "ours"), rounds=2, seconds=1.0, policy="always")
    for entry in entries:
        assert [record["samples"] for record in entry["peers"]["stock"]] == [[1 / campaign.TURNS] * campaign.TURNS] * 2
        assert entry["peers"]["ours"] == []
        assert "no more of it" in entry["failed"]["ours"]


def test_what_there_is_not_is_said() -> None:
    with pytest.raises(CaseError, match="resnet51"):
        jobs(("resnet51",), (), ())
    with pytest.raises(CaseError, match="f64"):
        jobs((), ("f64",), ())
    assert len(jobs((), (), ())) == 2 * sum(len(model.batches) for model in MODELS.values())


@pytest.mark.parametrize(
    "name",
    ["bert", "gpt2", "gpt2-decode", "t5-encoder", "whisper-encoder", "vit", "text-encoder", "unet", "vae-decoder"],
)
def test_both_frameworks_build_the_same_model(name: str) -> None:
    """Weights are random on both sides: the results' sizes and the number of weights tell."""
    for module in ("torch", "flax", "transformers", "diffusers"):
        pytest.importorskip(module)
    import jax

    from hlo_dispatch.bench.models import in_jax, in_torch

    function, arguments = in_jax.build(name, "f32", 1, dict(MODELS[name].small))
    module, inputs = in_torch.build(name, "f32", 1, dict(MODELS[name].small))
    result = jax.eval_shape(function, *arguments)
    # A cache also holds how many tokens are in it.
    sizes = [leaf.size for leaf in jax.tree.leaves(result) if leaf.shape]
    theirs = module(*inputs)
    assert sorted(sizes) == sorted(part.numel() for part in (theirs if isinstance(theirs, tuple) else (theirs,)))
    if name in ("unet", "vae-decoder"):
        return  # the narrow ones normalise in other groups
    weights = sum(leaf.size for leaf in jax.tree.leaves(arguments[0]))
    theirs = sum(weight.numel() for weight in module.parameters())
    # A pooler or a tied vocabulary on one side only.
    assert weights == pytest.approx(theirs, rel=0.1)
