"""Facts of equal matches: computed once, and shared by no two matches that differ in what they are computed from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_dispatch.match.equal_matches import once_for_equal_matches
from hlo_dispatch.match.match import Match
from matching import only_match

PRODUCT = """
ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  w = f32[8,16]{1,0} parameter(1)
  b = f32[4,16]{1,0} parameter(2)
  product = f32[4,16]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[4,16]{1,0} add(product, b)
}"""
OTHERS = {
    "another step": PRODUCT.replace("add(product, b)", "multiply(product, b)"),
    "no step": PRODUCT.replace("out = f32[4,16]{1,0} add(product, b)", "out = f32[4,16]{0,1} copy(product)"),
    "another size": PRODUCT.replace("[4,", "[5,"),
    "another layout": PRODUCT.replace("w = f32[8,16]{1,0}", "w = f32[8,16]{0,1}"),
    "a bias": PRODUCT.replace("b = f32[4,16]{1,0} parameter(2)", "v = f32[16]{0} parameter(2)").replace(
        "  ROOT", "  b = f32[4,16]{1,0} broadcast(v), dimensions={1}\n  ROOT"
    ),
    "another type": PRODUCT.replace("f32", "bf16"),
    "half precision in memory": PRODUCT.replace("x = f32", "hx = bf16")
    .replace("w = f32", "hw = bf16")
    .replace("  b =", "  x = f32[4,8]{1,0} convert(hx)\n  w = f32[8,16]{1,0} convert(hw)\n  b ="),
}


def test_a_fact_of_equal_matches_is_computed_once() -> None:
    asked: list[Match] = []

    @once_for_equal_matches
    def formula_of(match: Match, prefix: str) -> str:
        asked.append(match)
        return prefix + match.formula

    first, second = only_match(PRODUCT), only_match(PRODUCT.replace("product", "another").replace("main", "twin"))
    assert first.output is not second.output
    assert formula_of(first, "1: ") == formula_of(second, "1: ") == "1: x @ w + r1"
    assert asked == [first]
    assert formula_of(second, "2: ") == "2: x @ w + r1"
    assert formula_of(second.with_kernel("another"), "2: ") == "2: x @ w + r1"
    assert len(asked) == 3


@pytest.mark.parametrize("other", OTHERS)
def test_what_differs_shares_no_facts(other: str) -> None:
    first, second = only_match(PRODUCT), only_match(OTHERS[other])
    assert first.facts is not second.facts
    assert first.attributes() != second.attributes()


def test_a_shorter_epilogue_shares_none() -> None:
    match = only_match(PRODUCT)
    shorter = match.shortened()
    assert shorter is not None
    assert shorter.facts is not match.facts


def test_static_weights_count() -> None:
    match = only_match(PRODUCT)
    assert match.fused is not None
    assert match.anchor.weights is not None
    static = match.with_epilogue(replace(match.fused, static=frozenset((match.anchor.weights.node,))))
    assert static.has_static_weights
    assert static.facts is not match.facts
