"""Anchor entries: types, epilogues and chains that an entry declares are those of the matcher, a user's own too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from structures import module_text

import hlo_dispatch
from hlo_dispatch.driver.profile import profiling
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.match.anchors.normalizers import NORMALIZERS
from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.pattern import load_tables, shipped_tables
from hlo_dispatch.pattern.op_kinds import MAY_BE_ANCHORS, OP_KINDS
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.report import Region
from hlo_dispatch.selection.candidate import KernelSupportQuery
from hlo_dispatch.selection.cost_model import MODELS
from hlo_dispatch.selection.decide import Decision, MeasurementLookup, decide
from matching import serialized
from side_by_side import assert_close, run_module

ENTRY = """\
version: 1
anchors:
  my_product:
    opcode: dot
    kernel: onednn.matmul
    formula: relu(x @ w)
    dtypes: [f32]
    epilogues: {activations: [relu], binaries: []}
    numerics:
      f32: {tolerance: 1e-5, why: sums in another order}
    priority: 1
    origin: my model
"""


def write(folder: Path, **changes: str) -> Path:
    """The table above, with other lines for some keys; an empty one takes the line out."""
    lines = ENTRY.splitlines()
    for key, value in changes.items():
        (number,) = [number for number, line in enumerate(lines) if line.startswith(f"    {key}:")]
        lines[number] = f"    {key}: {value}" if value else ""
    path = folder / "mine.yaml"
    path.write_text("\n".join(line for line in lines if line) + "\n")
    return path


def product(steps: str, dtype: str = "f32", result: str = "f32") -> str:
    """A product of two matrices of one type with the steps behind it, the last of them %end."""
    kind = f"{dtype}[64,64]{{1,0}}"
    return module_text(f"""
    x = {kind} parameter(0)
    w = {kind} parameter(1)
    r = {result}[64,64]{{1,0}} parameter(2)
    b = {result}[64]{{0}} parameter(3)
    bias = {result}[64,64]{{1,0}} broadcast(b), dimensions={{1}}
    zero = {result}[] constant(0)
    zeros = {result}[64,64]{{1,0}} broadcast(zero), dimensions={{}}
    p = {result}[64,64]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    {steps}
    ROOT last = ({result}[64,64]{{1,0}}, {result}[64,64]{{1,0}}) tuple(end, r)
""")


F = "f32[64,64]{1,0}"
RELU = f"end = {F} maximum(p, zeros)"
BIAS_RELU = f"s = {F} add(p, bias)\n end = {F} maximum(s, zeros)"
SWISH = f"g = {F} logistic(p)\n end = {F} multiply(g, p)"
RELU_ADD = f"a = {F} maximum(p, zeros)\n end = {F} add(a, r)"


def region(text: str, *tables: Path) -> Region:
    """What the report says of the module's one anchor."""
    (found,) = hlo_dispatch.rewrite(text, tables=tables, policy="always").report.regions
    return found


def post_ops(found: Region) -> list[str]:
    return [value["algorithm"] for name, value in found.attributes.items() if name.startswith("post_op_")]


# --- a user's own anchor -----------------------------------------------------------------------------------


def test_a_users_anchor_fires(tmp_path: Path) -> None:
    """Decided by, called by and reported under its own name, with nothing but a file of YAML."""
    mine = write(tmp_path)
    result = hlo_dispatch.rewrite(product(RELU), tables=[mine], policy="always")
    (found,) = result.report.dispatched
    assert (found.entry, found.kernel, found.formula) == ("my_product", "onednn.matmul", "relu(x @ w)")
    assert result.report.to_dict()["regions"][0]["entry"] == "my_product"
    assert result.proto is not None
    targets = [i.custom_call_target for i in Module.from_bytes(result.proto).entry.instructions]
    assert "hlo_dispatch.onednn.matmul" in targets
    assert region(product(RELU)).entry == "dot"


def test_a_users_anchor_computes_what_stock_computes(tmp_path: Path) -> None:
    """The sum behind its relu, which it leaves to XLA, is fused as before."""
    text = product(RELU_ADD)
    result = hlo_dispatch.rewrite(text, tables=[write(tmp_path)], policy="always")
    assert result.proto is not None
    assert [post_ops(found) for found in result.report.dispatched] == [["relu"]]
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape).astype("float32") for shape in ((64, 64), (64, 64), (64, 64), (64,))]
    struct = jax.ShapeDtypeStruct((64, 64), "float32")
    stock = run_module(serialized(text.partition("\n")[2]), inputs, (struct, struct))
    for value, expected in zip(run_module(result.proto, inputs, (struct, struct)), stock, strict=True):
        assert_close(value, expected, 1e-5)


def test_the_decision_names_it(tmp_path: Path) -> None:
    decided: list[Decision] = []

    def noted(
        match: Match,
        machine: Machine,
        policy: str,
        support_query: KernelSupportQuery,
        lookup: MeasurementLookup,
    ) -> Decision:
        decided.append(decide(match, machine, policy, support_query, lookup))
        return decided[-1]

    planner = Planner.make(load_tables([write(tmp_path)]), "always")
    Pipeline(replace(planner, decide=noted)).run(serialized(product(RELU).partition("\n")[2]))
    (candidate,) = [decision.candidate for decision in decided]
    assert candidate is not None
    assert candidate.match.name == "my_product"


def test_an_epilogue_block_is_extended(tmp_path: Path) -> None:
    """Keys come from the nearest block that writes them; the anchor itself is the nearest."""
    path = write(tmp_path, epilogues="{extends: few, longest_chain: 1}")
    path.write_text(path.read_text() + "epilogues:\n  few: {extends: fewer, binaries: [add]}\n"
                    "  fewer: {extends: none, activations: [relu], binaries: []}\n")  # fmt: skip
    anchor = load_tables([path]).anchors["my_product"]
    assert (anchor.activations, anchor.binaries, anchor.longest_chain) == (("relu",), ("add",), 1)
    path.write_text(path.read_text().replace("{extends: few, longest_chain: 1}", "few"))
    anchor = load_tables([path]).anchors["my_product"]
    assert (anchor.activations, anchor.binaries, anchor.longest_chain) == ((), (), 0)


def test_element_types_are_those_of_the_numerics(tmp_path: Path) -> None:
    assert load_tables([write(tmp_path, dtypes="")]).anchors["my_product"].dtypes == ("f32",)


def test_what_it_does_not_take_is_the_shipped_ones(tmp_path: Path) -> None:
    half = product("end = bf16[64,64]{1,0} maximum(p, zeros)", "bf16", "bf16")
    found = region(half, write(tmp_path))
    assert found.entry == "dot"
    assert found.kernel == region(half).kernel


def test_the_higher_priority_goes_first(tmp_path: Path) -> None:
    assert region(product(RELU), write(tmp_path, priority="-1")).entry == "dot"
    assert region(product(RELU), write(tmp_path, priority="2")).entry == "my_product"


def test_a_profile_counts_it_under_its_name(tmp_path: Path) -> None:
    pipeline, profile = profiling(load_tables([write(tmp_path)]), "always")
    pipeline.run(serialized(product(RELU).partition("\n")[2]))
    tried = {(tally.kind, tally.name): (tally.tries, tally.hits) for tally in profile.tallies.values()}
    assert tried["anchor", "my_product"][1] == 1
    assert ("anchor", "dot") not in tried
    assert tried["activation", "relu"][1] == 1


# --- each key has effect -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "steps", "taken", "why"),
    [
        ("{activations: [relu], binaries: []}", RELU, ["relu"], ""),
        ("{activations: [relu], binaries: []}", BIAS_RELU, [], "add may not follow my_product"),
        ("{activations: [relu], binaries: [add]}", BIAS_RELU, ["relu"], ""),
        ("{activations: all, binaries: [add]}", RELU_ADD, ["relu", "add"], ""),
        ("{activations: [swish], binaries: []}", SWISH, ["swish"], ""),
        ("{activations: [relu], binaries: all}", SWISH, [], "equals no activation that may follow my_product"),
        ("{activations: [], binaries: all}", SWISH, [], "equals no activation that may follow my_product"),
        ("{longest_chain: 2}", RELU_ADD, ["relu", "add"], ""),
        ("{longest_chain: 1}", RELU_ADD, ["relu"], "my_product takes 1 post-op"),
        ("{longest_chain: 0}", RELU_ADD, [], "the kernel has no post-ops"),
        ("", RELU_ADD, ["relu", "add"], ""),
    ],
)
def test_epilogues_say_what_may_follow(tmp_path: Path, allowed: str, steps: str, taken: list[str], why: str) -> None:
    found = region(product(steps), write(tmp_path, epilogues=allowed))
    assert found.entry == "my_product"
    # A sum right behind the product is its bias.
    assert post_ops(found) == taken
    assert why in found.stopped_because
    assert post_ops(region(product(steps))) != [] or not taken


def test_the_nearest_miss_is_among_what_may_follow(tmp_path: Path) -> None:
    path = write(tmp_path, epilogues="{activations: [relu], binaries: []}")
    pipeline = Pipeline.make(load_tables([path]), "always")
    _, report = pipeline.run(serialized(product(SWISH).partition("\n")[2]), details=True)
    (found,) = report.regions
    assert "no activation that may follow my_product: closest is relu" in found.stopped_because


@pytest.mark.parametrize(
    ("dtypes", "text", "entry", "taken"),
    [
        ("[f32]", product(RELU), "my_product", True),
        ("[bf16]", product(RELU), "dot", True),
        ("[bf16]", product("end = bf16[64,64]{1,0} maximum(p, zeros)", "bf16", "bf16"), "my_product", True),
        # Sums in f32 may be given as they are.
        ("[bf16]", product(RELU, "bf16"), "my_product", True),
        ("[f32]", product(RELU, "bf16"), "dot", True),
    ],
    ids=["f32", "f32 is not bf16", "bf16", "bf16 into f32", "bf16 is not f32"],
)
def test_dtypes_say_what_the_kernel_reads(tmp_path: Path, dtypes: str, text: str, entry: str, taken: bool) -> None:
    kind = dtypes.strip("[]")
    path = write(tmp_path, dtypes=dtypes)
    path.write_text(path.read_text().replace("f32: {tol", f"{kind}: {{tol"))
    found = region(text, path)
    assert (found.entry, found.dispatched) == (entry, taken)


def test_dtypes_end_the_chain(tmp_path: Path) -> None:
    """A kernel that is to read and give f32 alone does not round its result, and reads a residual as it was widened."""
    rounds = f"""h = bf16[64,64]{{1,0}} convert(p)
    end = {F} convert(h)"""
    assert "does not give bf16" in region(product(rounds), write(tmp_path)).stopped_because
    rest = f"""q = bf16[64,64]{{1,0}} parameter(4)
    wide = {F} convert(q)
    end = {F} add(p, wide)"""
    path = write(tmp_path, epilogues="")
    assert region(product(rest)).attributes["post_op_0"]["type"] == "bf16"
    assert region(product(rest), path).attributes["post_op_0"]["type"] == "f32"


def test_a_table_without_an_anchor_for_it_leaves_it_to_xla(tmp_path: Path) -> None:
    kernels = [path for path in shipped_tables() if path.name != "anchors.yaml"]
    mine = write(tmp_path, dtypes="[f32]")
    pipeline = Pipeline.make(load_tables([*kernels, mine], shipped=False), "always")
    half = product("end = bf16[64,64]{1,0} maximum(p, zeros)", "bf16", "bf16")
    _, report = pipeline.run(serialized(half.partition("\n")[2]))
    (found,) = report.regions
    assert found.reason == "the anchor my_product takes f32, not bf16"
    pipeline = Pipeline.make(load_tables(kernels, shipped=False), "always")
    _, report = pipeline.run(serialized(half.partition("\n")[2]))
    (found,) = report.regions
    assert found.reason == "the table has no anchor for a dot of op kind product"


# --- the language and the engine agree ---------------------------------------------------------------------


def test_every_reading_has_its_reader() -> None:
    assert NORMALIZERS.keys() == OP_KINDS.keys()


def test_every_reading_has_its_cost_model() -> None:
    assert {op_kind.cost_model for op_kind in OP_KINDS.values()} == MODELS.keys()


def test_every_reading_is_shipped() -> None:
    assert {anchor.op_kind for anchor in load_tables().anchors.values()} == OP_KINDS.keys()


def test_what_the_engine_looks_for_is_what_an_anchor_may_be() -> None:
    assert MAY_BE_ANCHORS == ANCHORS | {"reduce-window"}
    assert all(reading.kernels for reading in OP_KINDS.values())
    shipped = load_tables().kernels
    assert {kernel for reading in OP_KINDS.values() for kernel in reading.kernels} <= shipped.keys()
