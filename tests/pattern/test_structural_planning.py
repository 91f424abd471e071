"""Structural matches in a plan: conflicts over instructions, the rewritten module's calls, and compile cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from structures import module_text, without_shipped, write_table

import hlo_dispatch
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.pattern import load_tables, shipped_tables
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.report import Report
from hlo_dispatch.report.wording import summary
from hlo_dispatch.selection.decide import POLICIES
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements, Measurement

README = (shipped_tables()[0].parent / "README.md").read_text()

PRODUCT = """
    x = f32[64,64]{1,0} parameter(0)
    w = f32[64,64]{1,0} parameter(1)
    b = f32[64,64]{1,0} parameter(2)
    p = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    t = f32[64,64]{1,0} tanh(p)
    s = f32[64,64]{1,0} add(t, b)
    ROOT r = f32[64,64]{1,0} multiply(s, s)
"""


SERIALIZED = hlo_text.from_text(module_text(PRODUCT))


def rewrite(table: Path, body: str, policy: str = "always") -> hlo_dispatch.Rewritten:
    return hlo_dispatch.rewrite(module_text(body), tables=[table], policy=policy)


def taken(report: Report) -> dict[str, int]:
    """Kernel → how many instructions it covers."""
    return {str(region.kernel): len(region.covered) for region in report.dispatched}


@pytest.mark.parametrize(
    ("match", "priority", "wanted"),
    [
        # The product with its whole epilogue covers four instructions, these patterns two, two and four of them.
        ("tanh(x @ w)", None, {"onednn.matmul": 4}),
        ("square(a + b)", None, {"onednn.matmul": 4}),
        ("square(tanh(x @ w) + b)", None, {"mine.kernel": 4}),
        # What a priority says is more than what is covered.
        ("tanh(x @ w)", 5, {"mine.kernel": 2}),
        ("square(a + b)", 5, {"mine.kernel": 2, "onednn.matmul": 2}),
    ],
)
def test_what_covers_more_goes_first(tmp_path: Path, match: str, priority: int | None, wanted: dict[str, int]) -> None:
    result = rewrite(write_table(tmp_path, match, priority=priority), PRODUCT)
    assert taken(result.report) == wanted
    outranked = [
        r.refusal.sentence for r in result.report.left if r.refusal is not None and r.refusal.code == "outranked"
    ]
    assert outranked == ([] if "mine.kernel" in wanted else [outranked[0]])


def test_what_an_anchor_does_not_take_is_left_for_the_pattern(tmp_path: Path) -> None:
    """The heuristic leaves a product this small to XLA; the pattern behind it was asked for all the same."""
    result = rewrite(write_table(tmp_path, "square(a + b)"), PRODUCT, policy="heuristic")
    assert taken(result.report) == {"mine.kernel": 2}
    (region,) = result.report.dispatched
    assert region.reason == "the pattern mine of your table requests it"
    assert region.implementation == "library:Kernel"
    assert rewrite(write_table(tmp_path, "square(a + b)"), PRODUCT, policy="never").proto is None


class Slower(KnownMeasurements):
    """Whatever is asked for was measured, and was slower than stock."""

    def get(self, region: str) -> Measurement:
        return Measurement(STOCK, {STOCK: 1e-3, "whole": 2e-3}, thorough=True)


def test_which_policies_take_a_users_pattern_is_what_the_readme_says(tmp_path: Path) -> None:
    table = load_tables([write_table(tmp_path, "square(a + b)", priority=5)])
    (said,) = re.findall(r"A pattern of your own table is taken by (.*?) without being measured", README, re.DOTALL)
    taken = {
        policy
        for policy in POLICIES
        if "mine.kernel" in str(Pipeline.make(table, policy).with_knowledge(Slower()).run(SERIALIZED)[1].dispatched)
    }
    assert set(re.findall(r'"(\w+)"', said)) == taken == {"heuristic", "always"}
    unmeasured = Pipeline.make(table, "stored").run(SERIALIZED)[1]
    assert [region.kernel for region in unmeasured.dispatched] == ["mine.kernel"]


def test_overlapping_patterns_go_by_size(tmp_path: Path) -> None:
    table = write_table(tmp_path, "tanh(x @ w) + b")
    text = table.read_text()
    smaller = (
        text[text.index("  mine:") :].replace("  mine:", "  smaller:").replace("tanh(x @ w) + b", "square(x) * b + w")
    )
    smaller = smaller.replace("square(x) * b + w", "tanh(x) + b").replace("x: x, w: w, b: b", "x: x, w: b, b: b")
    table.write_text(text + smaller)
    assert [pattern.name for pattern in without_shipped(table).patterns] == ["mine", "smaller"]
    result = rewrite(table, PRODUCT.replace("ROOT r = f32[64,64]{1,0} multiply(s, s)", "").replace(" s =", " ROOT s ="))
    assert [region.covered for region in result.report.dispatched] == [("p", "t", "s")]


def test_the_call(tmp_path: Path) -> None:
    table = write_table(tmp_path, "swish(x, beta) + y", attributes={"rows": ("i64", "size(x, 0)")})
    body = """
        x = f32[4,8]{1,0} parameter(0)
        y = f32[4,8]{1,0} parameter(1)
        s = f32[4,8]{1,0} logistic(x)
        p = f32[4,8]{1,0} multiply(x, s)
        a = f32[4,8]{1,0} add(y, p)
        ROOT r = f32[4,8]{1,0} negate(a)
    """
    text = rewrite(table, body).text
    assert (
        'f32[4,8]{1,0} custom-call(%x, %y), custom_call_target="mine.kernel", '
        "api_version=API_VERSION_TYPED_FFI, backend_config={beta = 1.0 : f32, rows = 4 : i64}"
    ) in text
    assert "logistic" not in text
    write_table(tmp_path, "swish(x, beta) + y", scratch="64")
    scratch = rewrite(table, body).text
    assert "(f32[4,8]{1,0}, u8[64]{0}) custom-call(%x, %y)" in scratch
    assert "get-tuple-element" in scratch


def test_a_pattern_may_call_a_shipped_kernel(tmp_path: Path) -> None:
    """Element types, dimensions and strides of operands and result follow from the kernel's `describes`."""
    table = write_table(tmp_path, "tanh(x @ w)")
    text = table.read_text()
    kernel = """\
    kernel:
      name: onednn.matmul
      operands: {src: x, weights: w}
      attributes:
        post_op_0: {kind: eltwise, algorithm: tanh, alpha: 0.0, beta: 0.0}
"""
    start = text.index("    kernel:\n")
    table.write_text(text[:start] + kernel + text[text.index("    numerics:") :].replace("priority:", "priority: 9"))
    body = (
        PRODUCT.replace("    t =", "    ROOT t =").split("    s =")[0].replace("b = f32[64,64]{1,0} parameter(2)", "")
    )
    (region,) = rewrite(table, body).report.dispatched
    assert (region.kernel, region.covered) == ("onednn.matmul", ("p", "t"))
    for value in ("src", "weights", "dst"):
        described = [region.attributes[f"{value}_{word}"] for word in ("type", "dims", "strides")]
        assert described == ["f32", [64, 64], [64, 1]]
    assert "bias_type" not in region.attributes


def test_a_users_kernel_is_told_what_it_describes(tmp_path: Path) -> None:
    table = write_table(tmp_path, "tanh(x) + y")
    table.write_text(
        table.read_text().replace("    target: mine.kernel\n", "    describes: {x: [dims], dst: [type]}\n")
    )
    body = """
        x = f32[4,8]{1,0} parameter(0)
        y = f32[4,8]{1,0} parameter(1)
        t = f32[4,8]{1,0} tanh(x)
        ROOT a = f32[4,8]{1,0} add(t, y)
    """
    (region,) = rewrite(table, body).report.dispatched
    assert region.attributes == {"x_dims": [4, 8], "dst_type": "f32"}


def test_a_near_miss_is_no_region_that_could_have_been_dispatched(tmp_path: Path) -> None:
    """The pattern came as far as its square; there is no such instruction sequence to dispatch."""
    report = rewrite(write_table(tmp_path, "square(sine(x @ w))"), PRODUCT).report
    assert [region.missed for region in report.regions] == [False, True]
    assert (len(report.candidates), len(report.dispatched), len(report.left)) == (1, 1, 1)
    assert ": 1 of 1 region dispatched;" in summary(report)
