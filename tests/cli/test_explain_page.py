"""`hlo-dispatch explain --html`: one file that loads nothing and holds every region."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import jax
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.cli.explain_page import page
from hlo_dispatch.cli.explain_page.drawing import MOST_INSTRUCTIONS
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir import text as hlo_text

VOID = frozenset(("meta", "input", "link", "br", "img"))


class Reader(HTMLParser):
    """Checks that elements are closed in order, and keeps the data."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.data = ""

    def handle_starttag(self, tag, attrs):
        self.links += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in VOID:
            self.open.append(f"{tag} data" if ("id", "data") in attrs else tag)

    def handle_endtag(self, tag):
        assert self.open.pop().split()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script data":
            self.data += data


def read(text: str) -> dict:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert reader.links == []
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(", text.replace(reader.data, ""))
    return json.loads(reader.data)


@pytest.fixture
def report(optimized):
    return hlo_dispatch.rewrite(optimized[1], policy="always", details=True).report


def test_the_command_writes_it(run, text_file, tmp_path):
    done = run("explain", text_file, "--policy", "always", "--html", "out.html")
    assert done.returncode == 0, done.stderr.decode()
    data = read((tmp_path / "out.html").read_text())
    (region,) = data["regions"]
    assert region["kernel"] == "onednn.convolution"
    assert region["formula"].startswith("relu(")


def test_a_region_is_found_in_both_graphs(report):
    data = read(page(report))
    assert len(data["regions"]) == len(report.regions) == 1
    (before,), (after,) = data["before"], data["after"]
    names = data["strings"]
    held = [names[node[0]] for node in before["nodes"] if 0 in node[4]]
    rows = {names[row[0]] for node in before["nodes"] for row in node[6] if row[3] == 0}
    assert held
    assert set(report.regions[0].covered) <= rows | set(held)
    (call,) = (node for node in after["nodes"] if 0 in node[4])
    assert names[call[0]] == report.regions[0].call
    assert names[call[7]] == "hlo_dispatch.onednn.convolution"


def test_operands_are_places_in_the_same_graph(report):
    data = read(page(report))
    for graph in (*data["before"], *data["after"]):
        for place, node in enumerate(graph["nodes"]):
            assert all(operand < place for operand in node[3])


def test_what_was_left_is_there_with_its_reason(optimized):
    report = hlo_dispatch.rewrite(optimized[1], policy="never", details=True).report
    data = read(page(report))
    (region,) = data["regions"]
    assert (region["kernel"], data["after"]) == ("", [])
    assert "never" in region["why"]
    assert any(0 in node[4] for node in data["before"][0]["nodes"])


def test_names_cannot_break_out_of_the_data():
    text = """HloModule evil
ENTRY e {
  x = f32[4,8]{1,0} parameter(0), metadata={op_name="</script><!-- <script>alert(1)"}
  w = f32[8,16]{1,0} parameter(1)
  ROOT dot = f32[4,16]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    report = hlo_dispatch.rewrite(hlo_text.from_text(text), policy="always", details=True).report
    assert "</script><!-- <script>alert(1)" in read(page(report))["strings"]


def test_loops_have_graphs_of_their_own():
    def body(_, x):
        return jax.nn.relu(x @ x)

    compiled = jax.jit(lambda x: jax.lax.fori_loop(0, 3, body, x)).lower(np.zeros((64, 64), "float32")).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    serialized = module.as_serialized_hlo_module_proto()
    data = read(page(hlo_dispatch.rewrite(serialized, policy="always", details=True).report))
    names = [graph["name"] for graph in data["before"]]
    assert names[0].startswith("main")
    assert data["regions"][0]["computation"] in names[1:]


def test_a_large_module_is_cut_and_the_page_says_so():
    lines = [f"  v{i} = f32[8]{{0}} negate(v{i - 1})" for i in range(1, MOST_INSTRUCTIONS + 500)]
    text = "\n".join(
        [
            "HloModule long",
            "ENTRY e {",
            "  v0 = f32[8]{0} parameter(0)",
            *lines,
            "  x = f32[4,8]{1,0} parameter(1)",
            "  ROOT d = f32[4]{0} dot(x, v9), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "}",
        ]
    )
    written = page(hlo_dispatch.rewrite(hlo_text.from_text(text), policy="always", details=True).report)
    data = read(written)
    assert len(data["before"][0]["nodes"]) == MOST_INSTRUCTIONS < data["before"][0]["total"]
    assert len(written) < 10_000_000


def test_explain_of_a_function_can_be_written(tmp_path):
    def layer(x, w, b):
        return jax.nn.gelu(x @ w + b)

    arguments = [np.ones(shape, "float32") for shape in ((64, 256), (256, 512), (512,))]
    known = hlo_dispatch.reports()
    report = hlo_dispatch.explain(layer, *arguments)
    hlo_dispatch.write_page(report, tmp_path / "page.html")
    assert len(read((tmp_path / "page.html").read_text())["regions"]) == len(report.regions) > 0
    others = [other for other in hlo_dispatch.reports() if not any(other is one for one in (report, *known))]
    assert all(other.before is None for other in others)


def test_a_report_without_modules_is_refused(optimized):
    report = hlo_dispatch.rewrite(optimized[1]).report
    with pytest.raises(HloDispatchError, match="no module to draw"):
        page(report)
