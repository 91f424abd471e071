"""The report: every number on it comes from the files; and the README's tables are in step with the committed ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hlo_dispatch.bench.cases import make_case
from hlo_dispatch.bench.micro import described
from hlo_dispatch.bench.models.diffusion import image_latency
from hlo_dispatch.bench.report import numbers
from hlo_dispatch.bench.report.gather import Gathered, gather
from hlo_dispatch.bench.report.readme import BEGIN, END, NoPlace, with_ratios, with_tables
from hlo_dispatch.bench.result_files import Results, ResultsError

pytestmark = pytest.mark.any_python

ROOT = Path(__file__).parents[2]
HEADER = {
    "machine": {"model": "A CPU", "threads": 2, "features": ["avx2"]},
    "versions": {"jax": "0.12", "oneDNN": "3.13"},
    "peak": {"arithmetic": {"f32": 5e11, "bf16": 1e12}, "bandwidth": 4e10},
}


def sides(**medians: float) -> dict:
    return {name: {"samples": [seconds * 0.9, seconds, seconds * 1.2]} for name, seconds in medians.items()}


@pytest.fixture
def results(tmp_path: Path) -> list[Path]:
    case = make_case("conv_bias_relu", "n=1,c=64,h=56,w=56,k=64,r=3", model="a <model>", tags=("primary",))
    entry = described(case) | {"sides": sides(stock=2e-3, ours=1e-3, raw=9e-4), "kernels": ["onednn.convolution"]}
    record = {"compile": 1.0, "first_call": 0.1, "samples": [0.01, 0.02, 0.03], "peak_memory": 2**30}
    slow = record | {"samples": [0.03, 0.04, 0.05]}
    model = {
        "name": "bert f32 batch 1", "model": "bert", "dtype": "f32", "batch": 1,
        "peers": {"stock": [slow, slow], "ours": [record, record], "openvino": []}, "failed": {"openvino": "no & such"},
    }  # fmt: skip
    profile = {
        "name": "bert f32 batch 1", "stock": 4e-3, "dispatched": 2e-3, "stock_instructions": 5e-3,
        "dispatched_instructions": 2e-3,
        "regions": [{"kernel": "onednn.matmul", "stock": 4e-3, "dispatched": 1e-3},
                    {"kernel": "", "stock": 5e-4, "dispatched": None}],
        "left": [{"seconds": 1e-3}],
    }  # fmt: skip
    paths = []
    for kind, content in (("patterns", entry), ("models", model), ("profiles", profile)):
        paths.append(tmp_path / f"{kind}.json")
        Results(paths[-1], kind, HEADER, [content]).write()
    return paths


def test_numbers(results: list[Path]) -> None:
    gathered = gather(results)
    (entry,) = gathered.entries["patterns"]
    assert numbers.speedups(entry) == pytest.approx({"ours": 2.0, "raw": 2 / 0.9})
    (stock, ours) = numbers.points([entry])
    assert stock[2] == ours[2] == entry["work"] / entry["bytes"]
    assert ours[3] == pytest.approx(entry["work"] / 1e-3)
    assert numbers.latencies(gathered.entries["models"][0]) == {"stock": 0.04, "ours": 0.02}
    before, after = numbers.breakdown(gathered.entries["profiles"][0])
    assert before == pytest.approx({"onednn.matmul": 3.2e-3, "generated code": 0.8e-3})
    assert after == pytest.approx({"onednn.matmul": 1e-3, "generated code": 1e-3})


def test_the_page_is_self_contained(results: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from hlo_dispatch.bench.report.page import write_report

    written = write_report(gather(results), str(tmp_path / "page.html"), tmp_path / "png")
    assert {Path(name).name for name in written} == {
        "page.html", "patterns.png", "roofline.png", "models.png", "breakdown.png",
    }  # fmt: skip
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4
    assert not re.findall(r'(?:src|href)="?https?:', page.replace("http://www.w3.org", ""))
    for said in ("A CPU", "2.00x", "a &lt;model&gt;", "no &amp; such", "1,024 MiB"):
        assert said in page, said
    assert (tmp_path / "png" / "roofline.png").read_bytes().startswith(b"\x89PNG")


def test_files_that_do_not_go_together(results: list[Path], tmp_path: Path) -> None:
    other = json.loads(results[1].read_text())
    other["header"]["machine"]["model"] = "Another"
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(ResultsError, match="different machines"):
        gather([results[0], tmp_path / "other.json"])
    with pytest.raises(ResultsError, match="second file"):
        gather([results[0], results[0]])
    with pytest.raises(ResultsError, match="does not exist"):
        gather([tmp_path / "none.json"])


def test_tables_go_between_the_marks(results: list[Path]) -> None:
    gathered = gather(results)
    text = with_tables(f"before\n{BEGIN}\nold\n{END}\nafter", gathered)
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert "| BERT-base, 128 tokens, f32, batch 1 | 40 | 20 | 2.00x | 2.00x |" in text
    assert with_tables(text, gathered) == text
    for wrong in ("nothing", f"{END} {BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"):
        with pytest.raises(NoPlace):
            with_tables(wrong, gathered)


def test_ratios_go_between_the_marks(results: list[Path]) -> None:
    gathered = gather(results)
    text = with_ratios(f"before\n{BEGIN}\nold\n{END}\nafter", gathered)
    assert "old" not in text
    assert "| f32, batch 1 | over stock XLA | over the best peer |" in text
    assert "| BERT-base, 128 tokens | 2.00x | 2.00x |" in text
    assert with_ratios(text, gathered) == text
    with pytest.raises(NoPlace):
        with_ratios("nothing", gathered)


def test_the_pages_are_in_step_with_the_committed_results() -> None:
    files = sorted((ROOT / "bench" / "results").glob("*.json"))
    assert files
    gathered = gather(files)
    for name, written in (("bench/results/README.md", with_tables), ("README.md", with_ratios)):
        text = (ROOT / name).read_text()
        assert written(text, gathered) == text, f"{name}: run hlo-dispatch bench readme bench/results/*.json"


def test_an_image_is_the_sum_of_its_parts() -> None:
    def part(model: str, batch: int, seconds: float) -> dict:
        return {"model": model, "batch": batch, "dtype": "f32", "peers": {"ours": [{"samples": [seconds] * 3}]}}

    parts = [part("text-encoder", 1, 0.1), part("unet", 2, 2.0), part("unet", 1, 1.0), part("vae-decoder", 1, 3.0)]
    assert image_latency(parts, "ours", "f32", 20) == pytest.approx(43.2)
    assert image_latency(parts, "ours", "bf16", 20) is None
    assert image_latency(parts[1:], "ours", "f32", 20) is None


def test_headers_of_all_files_are_kept(results: list[Path]) -> None:
    gathered = gather(results)
    assert isinstance(gathered, Gathered)
    assert gathered.header["peak"]["bandwidth"] == 4e10
