"""Region extraction: extracted modules run, compute the same, and equal ones have equal digests."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.compare.float64_reference import in_float64
from hlo_dispatch.autotune.compare.validation import difference
from hlo_dispatch.autotune.extract.context_ops import with_context_ops
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.extract.region import RegionExtractor
from hlo_dispatch.autotune.run.executable import Executable, start, to_device
from hlo_dispatch.autotune.run.inputs import random_inputs
from hlo_dispatch.driver.single_call import dispatch_single_call
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.selection.candidate import DefaultVariant, default_variant
from hlo_dispatch.vendor import registration
from matching import parsed

# A product in a fusion of its own, bias and tanh in the next one, which computes something else as well.
FUSED = """
product { a = f32[32,48]{1,0} parameter(0)
  c = f32[48,64]{1,0} parameter(1)
  ROOT dot = f32[32,64]{1,0} dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
loop { d = f32[32,64]{1,0} parameter(0)
  v = f32[64]{0} parameter(1)
  wide = f32[32,64]{1,0} broadcast(v), dimensions={1}
  sum = f32[32,64]{1,0} add(d, wide)
  tanh = f32[32,64]{1,0} tanh(sum)
  e = f32[32,64]{1,0} parameter(2)
  ROOT power = f32[32,64]{1,0} power(tanh, e) }
ENTRY main { x = f32[32,48]{1,0} parameter(0)
  y = f32[32,48]{1,0} exponential(x)
  w = f32[48,64]{0,1} parameter(1)
  turned = f32[48,64]{1,0} copy(w)
  b = f32[64]{0} parameter(2)
  two = f32[] constant(2)
  twos = f32[32,64]{1,0} broadcast(two), dimensions={}
  p = f32[32,64]{1,0} fusion(y, turned), kind=kLoop, calls=product
  last = f32[32,64]{1,0} fusion(p, b, twos), kind=kLoop, calls=loop
  ROOT both = (f32[32,64]{1,0}, f32[32,48]{1,0}) tuple(last, y) }
"""
# Two products in one library fusion, as XLA makes them; the second reads the first.
TWO = """
both { a = f32[32,48]{1,0} parameter(0)
  c = f32[48,64]{1,0} parameter(1)
  e = f32[64,32]{1,0} parameter(2)
  first = f32[32,64]{1,0} dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  tanh = f32[32,64]{1,0} tanh(first)
  ROOT second = f32[32,32]{1,0} dot(tanh, e), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
ENTRY main { x = f32[32,48]{1,0} parameter(0)
  w = f32[48,64]{1,0} parameter(1)
  u = f32[64,32]{1,0} parameter(2)
  ROOT r = f32[32,32]{1,0} fusion(x, w, u), kind=kLoop, calls=both }
"""


def regions(text: str) -> dict[str, tuple[RegionExtractor, DefaultVariant]]:
    """Anchor's name → who cuts it, and its default variant."""
    module = parsed(text)
    graph = FlatGraph(module, module.entry)
    planner = pipeline((), "always").planner
    plan = planner.plan(graph, lambda match, default: None, small=False)
    extractor = RegionExtractor(graph, Digests(module))
    found = {}
    for node, (match, decision) in plan.decisions.items():
        assert match is not None, str(decision.refusal)
        assert decision.candidate is not None, decision.reason
        default = default_variant(decision.candidate.match, planner.support_query)
        assert isinstance(default, DefaultVariant)
        found[node.name] = extractor, default
    return found


def extract(text: str, anchor: str) -> tuple[ExtractedModule, DefaultVariant]:
    extractor, default = regions(text)[anchor]
    extracted = extractor.extract(default.candidate.match)
    assert isinstance(extracted, ExtractedModule), str(extracted)
    return extracted, default


def digest(text: str, anchor: str) -> str:
    extractor, default = regions(text)[anchor]
    return extractor.digest(default.candidate.match, "")


def run(module: Module, extracted: ExtractedModule, dtype: str = "") -> list[np.ndarray]:
    start()
    registration.register()
    inputs = random_inputs(extracted.module, extracted.inputs, 3)
    executable = Executable(module)
    return [np.asarray(a) for a in executable(to_device([i.astype(dtype) if dtype else i for i in inputs]))]


CASES = [(FUSED, "dot"), (TWO, "first"), (TWO, "second")]
IDS = ["fused", "first of two", "second of two"]


@pytest.mark.parametrize(("text", "anchor"), CASES, ids=IDS)
def test_a_region_runs_alone_with_and_without_its_kernel(text: str, anchor: str) -> None:
    extracted, default = extract(text, anchor)
    stock = run(extracted.module, extracted)
    dispatched = dispatch_single_call(pipeline((), "heuristic"), extracted, default, default.variant)
    assert dispatched is not None
    assert dispatched.to_bytes().count(b"hlo_dispatch.onednn.matmul") == 1
    assert not difference(stock, run(dispatched, extracted), 1e-5)
    for module in (extracted.module, dispatched):
        in_context = with_context_ops(module, extracted, 2)
        assert (in_context.proto != module.proto) == any((*extracted.produced, *extracted.consumed))
        assert not difference(stock, run(in_context, extracted), 1e-5)


@pytest.mark.parametrize(("text", "anchor"), CASES, ids=IDS)
def test_in_double_it_is_the_same_more_exactly(text: str, anchor: str) -> None:
    extracted, _ = extract(text, anchor)
    wide = in_float64(extracted.module)
    assert wide is not None
    exact = run(wide, extracted, "float64")
    assert all(array.dtype == np.float64 for array in exact)
    found = difference(exact, run(extracted.module, extracted), 1e-5)
    assert not found
    assert found.value > 1e-9, "nothing was rounded: this is not float64 against float32"


def test_what_the_region_is_made_of() -> None:
    """Whole fusions; what the match looks past is inside, what makes its input is not."""
    extracted, _ = extract(FUSED, "dot")
    names = {i.name for i in extracted.module.instructions}
    assert {"dot", "tanh", "power"} <= names
    assert "y" not in names
    assert sorted(map(str, extracted.results)) == ["f32[32,64]{1,0}"]
    produced = {str(shape): flag for shape, flag in zip(extracted.inputs, extracted.produced, strict=True)}
    assert produced["f32[32,48]{1,0}"], "another instruction computes it"
    assert not produced["f32[64]{0}"], "it comes from outside"


def test_of_two_anchors_in_one_fusion_each_has_its_own_part() -> None:
    extracts = [extract(TWO, anchor)[0] for anchor in ("first", "second")]
    for extracted, (own, other) in zip(extracts, itertools.permutations(("first", "second")), strict=True):
        names = {i.name for i in extracted.module.instructions}
        assert own in names
        assert other not in names


def renamed(text: str) -> str:
    """Every name another one, in the same order."""
    words = set(re.findall(r"\b([a-z]\w*) = ", text)) | {"product", "loop", "both"}
    return re.sub(r"\b(" + "|".join(sorted(words, key=len, reverse=True)) + r")\b(?!\()", r"\1_2", text)


@pytest.mark.parametrize(("text", "anchor"), CASES, ids=IDS)
def test_equal_regions_have_equal_digests(text: str, anchor: str) -> None:
    assert digest(text, anchor) == digest(text, anchor)
    assert digest(renamed(text), f"{anchor}_2") == digest(text, anchor)
    # Something else in the module changes nothing.
    more = text.replace("ENTRY main { ", "ENTRY main { unrelated = f32[7]{0} parameter(3)\n  ")
    assert digest(more, anchor) == digest(text, anchor)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("32,48", "32,40"),
        ("tanh(sum)", "exponential(sum)"),
        ("constant(2)", "constant(3)"),
        ("kind=kLoop, calls=loop", 'kind=kLoop, calls=loop, backend_config={"outer_dimension_partitions":["2"]}'),
        ("power(tanh, e)", "atan2(tanh, e)"),
        ("y = f32[32,48]{1,0} exponential(x)", "y = f32[32,48]{1,0} bitcast(x)"),
        ("ROOT both = (f32[32,64]{1,0}, f32[32,48]{1,0}) tuple(last, y)",
         "ROOT both = (f32[32,64]{1,0}, f32[32,64]{1,0}) tuple(last, p)"),
    ],
)  # fmt: skip
def test_what_matters_is_in_the_digest(old: str, new: str) -> None:
    changed = FUSED.replace(old, new)
    assert changed != FUSED
    changed = changed.replace("48,64", "40,64") if new == "32,40" else changed
    assert digest(changed, "dot") != digest(FUSED, "dot")


def test_layouts_are_kept() -> None:
    """An operand that lies transposed in memory is given as it lies."""
    text = FUSED.replace("turned = f32[48,64]{1,0} copy(w)", "turned = f32[48,64]{1,0} bitcast(w)").replace(
        "w = f32[48,64]{0,1}", "w = f32[64,48]{0,1}"
    )
    extracted, _ = extract(text, "dot")
    assert "f32[48,64]{1,0}" in map(str, extracted.inputs)
    run(extracted.module, extracted)


def test_a_region_that_reads_a_tuple_cannot_be_cut() -> None:
    text = FUSED.replace("f32[32,48]{1,0} exponential(x)", "f32[32,48]{1,0} exponential(x)")
    extractor, default = regions(text)["dot"]
    graph = extractor._graph
    instruction = next(i for i in graph.instruction_of.values() if i.name == "y")
    instruction.shape.is_dynamic_dimension[0] = True
    answer = extractor.extract(default.candidate.match)
    assert isinstance(answer, Refusal)
    assert answer.code == "unmeasurable"


def test_a_module_whose_result_is_a_tuple_of_one_array() -> None:
    """Other hosts than JAX compile such modules."""
    module = parsed("""
ENTRY main { x = f32[5]{0} parameter(0)
  y = f32[5]{0} tanh(x)
  ROOT only = (f32[5]{0}) tuple(y) }
""")
    numbers = np.linspace(-2, 2, 5, dtype="float32")
    before = module.to_bytes()
    (result,) = Executable(module)(to_device([numbers]))
    np.testing.assert_allclose(result, np.tanh(np.float64(numbers)), rtol=1e-6)
    assert module.to_bytes() == before
