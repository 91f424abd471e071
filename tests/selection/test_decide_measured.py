"""Selection order: forced, measured, cost model, stock; with the store's measurements, on other machines."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.match.match import Match
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.candidate import (
    Candidate,
    DefaultVariant,
    default_variant,
    variant_named,
    variants_of,
    variants_to_measure,
)
from hlo_dispatch.selection.decide import decide
from hlo_dispatch.selection.measurements import STOCK, Measurement
from matching import only_match

AVX2 = Machine("old", frozenset(("avx2", "fma")), 4)
AVX512 = Machine("newer", frozenset(("avx2", "avx512f", "avx512_bf16")), 8)
AMX = Machine("server", frozenset(("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")), 64)
MACHINES = [AVX2, AVX512, AMX]

DENSE = """
ENTRY main {{ x = {kind}[256,256]{{1,0}} parameter(0)
  w = {kind}[256,256]{{1,0}} parameter(1)
  b = {kind}[256]{{0}} parameter(2)
  bias = {kind}[256,256]{{1,0}} broadcast(b), dimensions={{1}}
  dot = {kind}[256,256]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sum = {kind}[256,256]{{1,0}} add(dot, bias)
  ROOT tanh = {kind}[256,256]{{1,0}} tanh(sum) }}
"""
SCALED = """
ENTRY main { x = f32[1,56,56,64]{3,2,1,0} parameter(0)
  w = f32[1,1,64,64]{3,2,1,0} parameter(1)
  s = f32[64]{0} parameter(2)
  b = f32[64]{0} parameter(3)
  conv = f32[1,56,56,64]{3,2,1,0} convolution(x, w), window={size=1x1}, dim_labels=b01f_01io->b01f
  scale = f32[1,56,56,64]{3,2,1,0} broadcast(s), dimensions={3}
  scaled = f32[1,56,56,64]{3,2,1,0} multiply(conv, scale)
  shift = f32[1,56,56,64]{3,2,1,0} broadcast(b), dimensions={3}
  ROOT sum = f32[1,56,56,64]{3,2,1,0} add(scaled, shift) }
"""


class Kernel:
    """Takes everything; packs weights where it is asked to."""

    def __init__(self, *, refuses: str = "") -> None:
        self.refuses = refuses

    def __call__(self, match: Match, **more: str) -> Candidate | Refusal:
        if self.refuses and match.formula == self.refuses:
            return Refusal("kernel-unsupported", "not this one")
        attributes = match.attributes() | more
        return Candidate(
            match, Attributes(attributes), "brgemm", 0, reorders_weights=more.get("weights_format") == "any"
        )


def dense(kind: str = "f32") -> Match:
    return only_match(DENSE.format(kind=kind))


def knows(measured: Measurement):
    return lambda match, default: measured


def ask_nobody(match: Match, default: DefaultVariant) -> None:
    raise AssertionError("nothing was to be recalled")


FAST = Measurement("whole", {STOCK: 0.92e-3, "whole": 0.41e-3}, 0.51e-3, 0.01e-3)
SLOW = Measurement(STOCK, {STOCK: 0.4e-3, "whole": 0.9e-3}, 0.0, 0.01e-3)
WRONG = Measurement(STOCK, {}, refused={"whole": "it differs by 3"})


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.model)
@pytest.mark.parametrize("policy", ["measure", "stored"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_measurements_outweigh_the_cost_model(machine: Machine, policy: str, kind: str) -> None:
    """On any machine: whatever the cost model says."""
    won = decide(dense(kind), machine, policy, Kernel(), knows(FAST))
    assert won.candidate is not None
    assert won.reason == "measured: 410 µs against stock 920 µs"
    lost = decide(dense(kind), machine, policy, Kernel(), knows(SLOW))
    assert lost.candidate is None
    assert lost.refusal is not None
    assert (lost.refusal.code, lost.refusal.instruction) == ("slower", "dot")
    assert lost.reason == "measured: stock 400 µs against 900 µs (brgemm)"


def test_a_wrong_kernel_is_refused_however_fast() -> None:
    decision = decide(dense(), AMX, "measure", Kernel(), knows(WRONG))
    assert decision.refusal is not None
    assert (decision.refusal.code, decision.reason) == ("wrong-result", "wrong result: it differs by 3")


@pytest.mark.parametrize("policy", ["always", "never", "heuristic"])
def test_other_policies_do_not_even_ask(policy: str) -> None:
    decide(dense(), AMX, policy, Kernel(), ask_nobody)


@pytest.mark.parametrize(("kind", "taken"), [("f32", [True, True, True]), ("bf16", [False, True, True])])
def test_the_cost_model_decides_unmeasured_regions(kind: str, taken: list[bool]) -> None:
    """A bf16 product needs arithmetic for it; a tanh costs XLA a pass of its own everywhere."""
    decisions = [decide(dense(kind), machine, "measure", Kernel(), lambda m, d: None) for machine in MACHINES]
    assert [decision.candidate is not None for decision in decisions] == taken
    assert all(not decision.reason.startswith("measured") for decision in decisions)


def test_the_form_that_won_is_taken() -> None:
    measured = Measurement("bare", {STOCK: 3e-3, "whole": 2e-3, "bare": 1e-3}, 2e-3)
    decision = decide(dense(), AVX512, "stored", Kernel(), knows(measured))
    assert decision.candidate is not None
    assert decision.candidate.match.formula == "x @ w"
    assert decision.reason == "measured: 1 ms against stock 3 ms; bare"


def test_a_form_that_the_kernel_no_longer_takes_is_stock() -> None:
    measured = Measurement("bare", {STOCK: 3e-3, "bare": 1e-3}, 2e-3)
    decision = decide(dense(), AVX512, "stored", Kernel(refuses="x @ w"), knows(measured))
    assert decision.candidate is None
    assert "does not take it any more" in decision.reason


# --- variants -------------------------------------------------------------------------------------------------


def variants(match: Match, support_query: Kernel) -> dict[str, Candidate]:
    default = default_variant(match, support_query)
    assert isinstance(default, DefaultVariant)
    return dict(variants_of(default, support_query))


def test_forms_of_a_product() -> None:
    found = variants(dense(), Kernel())
    assert {name: candidate.match.formula for name, candidate in found.items()} == {
        "whole": "tanh(x @ w + b)",
        "onemkl.gemm": "tanh(x @ w + b)",
        "own.narrow_product": "tanh(x @ w + b)",
        "whole, weights packed": "tanh(x @ w + b)",
        "bare": "x @ w",
        "one step less": "x @ w + b",
    }
    assert found["whole, weights packed"].attributes["weights_format"] == "any"
    assert "weights_format" not in found["whole"].attributes
    assert [candidate.match.kernel for candidate in found.values()][:4] == [
        "onednn.matmul",
        "onemkl.gemm",
        "own.narrow_product",
        "onednn.matmul",
    ]


@pytest.mark.parametrize(("kind", "rows", "first"), [("f32", 1, "own.narrow_product"), ("bf16", 1, "whole"),
                                                    ("f32", 2, "whole")])  # fmt: skip
def test_one_row_of_f32_is_asked_of_its_own_kernel_first(kind: str, rows: int, first: str) -> None:
    """And of all others behind it, each once."""
    text = DENSE.format(kind=kind)
    for name in ("x", "bias", "dot", "sum", "tanh"):
        text = text.replace(f"{name} = {kind}[256,256]", f"{name} = {kind}[{rows},256]")
    match = only_match(text)
    found = variants(match, Kernel())
    assert next(iter(found)) == first
    assert {"whole", "onemkl.gemm", "own.narrow_product"} <= set(found)
    assert found["whole"].match.kernel == "onednn.matmul"
    assert found["own.narrow_product"].match.kernel == "own.narrow_product"


class WithAlternativeKernel(Kernel):
    """The alternative kernel takes what `takes` names, or nothing."""

    def __init__(self, *takes: str) -> None:
        super().__init__()
        self.takes = takes

    def __call__(self, match: Match, **more: str) -> Candidate | Refusal:
        if match.kernel == "onemkl.gemm" and match.formula not in self.takes:
            return Refusal("kernel-unsupported", "not this one")
        return super().__call__(match, **more)


def test_an_alternative_kernel_has_as_much_of_the_epilogue_as_it_takes() -> None:
    found = variants(dense(), WithAlternativeKernel("x @ w", "x @ w + b"))
    assert found["onemkl.gemm"].match.formula == "x @ w + b"
    assert found["whole"].match.formula == "tanh(x @ w + b)"
    assert "onemkl.gemm" not in variants(dense(), WithAlternativeKernel())


def test_what_is_tried_in_a_hurry() -> None:
    """Of each kernel one: nobody knows which is faster here."""

    def tried(match: Match, support_query: Kernel, most: int) -> list[str]:
        default = default_variant(match, support_query)
        assert isinstance(default, DefaultVariant)
        return [name for name, _ in variants_to_measure(default, support_query, most)]

    each = ["whole", "onemkl.gemm", "own.narrow_product"]
    assert tried(dense(), Kernel(), 1) == each
    assert tried(dense(), WithAlternativeKernel(), 1) == ["whole", "own.narrow_product"]
    assert tried(dense(), Kernel(), 4) == [*each, "whole, weights packed"]
    assert tried(only_match(SCALED), Kernel(), 1) == ["folded"]


def test_the_cost_model_names_no_alternative_kernel() -> None:
    """It would be a guess from another processor; one row of f32 is limited by memory on every one."""
    for machine in MACHINES:
        for policy in ("heuristic", "always"):
            decision = decide(dense(), machine, policy, Kernel())
            assert decision.candidate is None or decision.candidate.match.kernel == "onednn.matmul"
    refused = decide(dense(), AVX512, "heuristic", Kernel(refuses="tanh(x @ w + b)"))
    assert refused.candidate is None or refused.candidate.match.kernel == "onednn.matmul"


def test_an_alternative_kernel_that_won_is_taken() -> None:
    measured = Measurement("onemkl.gemm", {STOCK: 3e-3, "whole": 2e-3, "onemkl.gemm": 1e-3}, 2e-3)
    decision = decide(dense(), AVX512, "stored", Kernel(), knows(measured))
    assert decision.candidate is not None
    assert decision.candidate.match.kernel == "onemkl.gemm"
    assert decision.reason == "measured: 1 ms against stock 3 ms; onemkl.gemm"
    gone = decide(dense(), AVX512, "stored", WithAlternativeKernel(), knows(measured))
    assert gone.candidate is None
    assert "does not take it any more" in gone.reason


def test_forms_of_a_scaled_convolution() -> None:
    """Scales folded into the weights or behind the convolution: whichever is the default, both are there."""
    found = variants(only_match(SCALED), Kernel())
    assert next(iter(found)) == "folded"
    assert found["folded"].match.formula == "conv(x, w·s) + b"
    assert found["whole"].match.formula == "(conv(x, w) · v1) + v2"
    assert found["bare"].match.formula == "conv(x, w)", "with weights that nobody has scaled"
    small = SCALED.replace("56,56", "2,2")
    assert list(variants(only_match(small), Kernel()))[:2] == ["whole", "folded"]


def test_a_form_is_found_by_its_name() -> None:
    match, support_query = only_match(SCALED), Kernel()
    default = default_variant(match, support_query)
    assert isinstance(default, DefaultVariant)
    for name, candidate in variants_of(default, support_query):
        found = variant_named(name, default, support_query)
        assert found is not None
        assert found.attributes == candidate.attributes
    assert variant_named("upside down", default, support_query) is None
