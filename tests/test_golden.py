"""Golden tests of the table's entries, accepted and refused: tests/golden/<entry>/<case>.*.hlo

A `.before.hlo` is a module as XLA passes it to the hook; its `.after.hlo` is the module after the pipeline with policy
"always".
A `.refused.hlo` starts with comments that name the refused instructions and the reasons; the test compares
them. After a
deliberate change: `pytest tests/test_golden.py --write-goldens`, then read `git diff tests/golden`.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from canonical_text import canonical_text
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.match.attention.attention_match import AttentionMatch
from hlo_dispatch.match.attention.finder import AttentionFinder
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.routines.routine import RoutineFinder, RoutineMatch
from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.match.structural.structural_match import NearestMiss, StructuralMatch
from hlo_dispatch.pattern import Recogniser, Table, load_tables
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.report import Report
from processor import HAS_AVX512, skip_without
from side_by_side import assert_close, run_module

Found = Match | RoutineMatch | AttentionMatch | StructuralMatch | NearestMiss | Refusal
GOLDEN = Path(__file__).with_name("golden")
ACCEPTED = sorted(GOLDEN.glob("*/*.before.hlo"))
REFUSED = sorted(GOLDEN.glob("*/*.refused.hlo"))
NAMES = {
    "f32": "float32", "bf16": "bfloat16", "f16": "float16", "pred": "bool", "s32": "int32", "s8": "int8",
    "s4": "int4", "c64": "complex64",
}  # fmt: skip
INTEGERS = {"s8": (-128, 128), "s4": (-8, 8)}


# What the files were written on, as far as the policy asks: which of several libraries comes first is its choice.
MACHINE = Machine("AMD EPYC", frozenset(("avx2", "avx512f", "avx512dq", "avx512_bf16")), 2)


def case(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


@lru_cache(maxsize=1)
def table() -> Table:
    return load_tables()


def entries() -> set[str]:
    named = (
        *table().activations,
        *table().binaries.values(),
        *table().routines,
        *table().patterns,
        *table().attentions,
    )
    return {entry.name for entry in named} | set(table().anchors)


@pytest.fixture(scope="module", autouse=True)
def lapack() -> None:
    """JAX makes LAPACK's calls known when it first lowers one."""
    jax.jit(jnp.linalg.cholesky).lower(jnp.eye(2))


# --- every entry is shown -----------------------------------------------------------------------------------


def test_every_entry_has_an_accept_and_a_refusal() -> None:
    assert {path.parent.name for path in ACCEPTED} == entries(), "accepts against table entries"
    assert {path.parent.name for path in REFUSED} == entries(), "refusals against table entries"


def test_no_file_is_left_over() -> None:
    known = {*ACCEPTED, *REFUSED, *(after(path) for path in ACCEPTED)}
    assert sorted(set(GOLDEN.rglob("*.*")) - known) == []


# --- accepts ------------------------------------------------------------------------------------------------


def after(before: Path) -> Path:
    return before.with_name(before.name.replace(".before.", ".after."))


@pytest.mark.parametrize("before", ACCEPTED, ids=case)
def test_accepted(before: Path, request: pytest.FixtureRequest) -> None:
    serialized = hlo_text.from_text(before.read_text())
    module = Module.from_bytes(serialized)
    verify(module)

    proto, report = pipeline().run(serialized)
    skip_where_the_processor_lacks(before, report)
    assert proto is not None, [str(region.refusal) for region in report.regions]
    verify(Module.from_bytes(proto))
    text = canonical_text(proto)
    if request.config.getoption("write_goldens"):
        after(before).write_text(text)
    assert text == after(before).read_text()
    glue_entries = {region.entry for region in report.dispatched}  # glue ops are dispatched only between other calls
    is_shown = before.parent.name in glue_entries or any(shows(before.parent.name, match) for match in matches(module))
    assert is_shown, "the case does not show its entry"

    assert pipeline().run(proto)[0] is None, "dispatching the output again changes it"

    inputs, results = signature(module)
    stock = run_module(serialized, inputs, results)
    dispatched = run_module(proto, inputs, results)
    for wanted, got in zip(stock, dispatched, strict=True):
        assert_close(got, wanted)


@lru_cache(maxsize=1)
def pipeline() -> Pipeline:
    return Pipeline.make(table(), "always", MACHINE)


def skip_where_the_processor_lacks(before: Path, report: Report) -> None:
    """What the libraries have no code for on a lesser processor than the files were written on."""
    if "bf16[" in before.read_text():
        skip_without("bf16")
    if HAS_AVX512:
        return
    if "hlo_dispatch.blocked." in after(before).read_text():
        pytest.skip("this processor has no AVX-512, so another library is called")
    for region in report.left:
        if region.refusal is not None and region.refusal.code == "reference-kernel":
            pytest.skip(f"without AVX-512: {region.refusal}")


def signature(module: Module) -> tuple[list[np.ndarray], object]:
    """Random inputs for the module's entry, and what it returns.

    The same ones every day, as a logarithm of a sum near zero has no tolerance that is fair to all inputs; the
    hunts of tests/jax draw new ones.
    """
    random = np.random.default_rng(zlib.crc32(module.name.encode()))
    inputs = []
    for proto in module.entry.program_shape.parameters:
        shape = shape_of(proto)
        value = random.standard_normal(shape.dimensions) if shape.element_type != "pred" else np.True_
        if shape.element_type in INTEGERS:
            value = random.integers(*INTEGERS[shape.element_type], shape.dimensions)
        if shape.element_type == "c64":
            value = value + 1j * random.standard_normal(shape.dimensions)
        inputs.append(np.asarray(value).astype(dtype_of(shape)))
    result = module.entry.program_shape.result
    parts = [shape_of(part) for part in result.tuple_shapes] or [shape_of(result)]
    structs = tuple(jax.ShapeDtypeStruct(part.dimensions, dtype_of(part)) for part in parts)
    return inputs, structs if result.tuple_shapes else structs[0]


def dtype_of(shape: Shape) -> np.dtype:
    return jnp.dtype(NAMES[shape.element_type])


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REFUSED, ids=case)
def test_refused(path: Path) -> None:
    text = path.read_text()
    said = [line.removeprefix("// ") for line in text.splitlines() if line.startswith("//")]
    serialized = hlo_text.from_text(text)
    module = Module.from_bytes(serialized)
    verify(module)
    found = matches(module)
    assert said == [why(match) for match in found]
    assert not any(shows(path.parent.name, match) for match in found)

    rewritten = hlo_dispatch.rewrite(serialized, policy="always")
    if all(isinstance(match, Refusal | NearestMiss) for match in found):
        assert rewritten.proto is None
        codes = {match.code for match in found if isinstance(match, Refusal)}
        codes |= {"near-miss" for match in found if isinstance(match, NearestMiss) and match.is_reported}
        reported = {region.refusal.code for region in rewritten.report.regions}
        # Beside an anchor's refusal the report also says how far the patterns came.
        assert codes <= reported <= codes | {"near-miss"}


def why(match: Found) -> str:
    """What a refused file's comment says: an anchor's refusal, where its epilogue stops, or how far a pattern came."""
    if isinstance(match, Refusal):
        return f"{match.code}: %{match.instruction}"
    if isinstance(match, NearestMiss):
        return match.sentence
    if isinstance(match, StructuralMatch):
        return f"{match.pattern.name}: %{match.output.name}"
    if isinstance(match, RoutineMatch):
        return f"{match.routine.name}: %{match.node.name}"
    if isinstance(match, AttentionMatch):
        return f"{match.name}: %{match.node.name}"
    where = f" at %{match.chain.stopped_at.name}" if match.chain.stopped_at is not None else ""
    return f"the epilogue stops{where}: {match.chain.explanation()}"


# --- what a module's anchors become -------------------------------------------------------------------------


def matches(module: Module) -> list[Found]:
    """Every library call, attention and pattern, then every anchor's match with its longest epilogue, or its refusal.

    Where nothing else is in the module, also how far each pattern came that matched nowhere.
    """
    found: list[Found] = []
    misses: list[NearestMiss] = []
    for computation, small in module.control_flow_computations():
        graph = FlatGraph(module, computation)
        found += [match for _, match in RoutineFinder(table()).find(graph)]
        found += [match for _, match in AttentionFinder(table()).find(graph)]
        patterns = StructuralFinder(table()).find(graph)
        found += patterns.matches
        misses += patterns.misses.values()
        matcher = Matcher(graph, table(), finder())
        taken: set = set()
        for node in matcher.anchors():
            if small:
                found.append(Refusal("small-call", "", node.name))
                continue
            match = matcher.match(node, taken.__contains__, {graph.root}.__contains__)
            found.append(match)
            if isinstance(match, Match):
                taken.update(match.covered)
    return found or [*misses]


@lru_cache(maxsize=1)
def finder() -> EpilogueFinder:
    return EpilogueFinder(Recogniser(table().activations), table().binaries)


def shows(entry: str, match: Found) -> bool:
    """Whether the match makes use of this entry of the table."""
    if isinstance(match, Refusal | NearestMiss):
        return False
    if isinstance(match, StructuralMatch):
        return match.pattern.name == entry
    if isinstance(match, RoutineMatch):
        return match.routine.name == entry
    if isinstance(match, AttentionMatch):
        return match.name == entry
    if entry in table().anchors:
        return match.anchor.entry.name == entry
    opcodes = {binary.name: binary.opcode for binary in table().binaries.values()}
    for step in match.steps:
        for post_op in step.post_ops:
            if entry in opcodes and post_op.operand is not None and step.result.opcode == opcodes[entry]:
                return True
            if entry not in opcodes and re.split(r"[(\[]", post_op.formula)[0] == entry:
                return True
    return False
