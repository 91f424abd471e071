"""Golden tests of the table's entries, accepted and refused: tests/golden/<entry>/<case>.*.hlo

A `.before.hlo` is a module as XLA passes it to the hook; its `.after.hlo` is the module after the pipeline with policy
"always". A `.refused.hlo` is a module in which the pipeline does not use the entry. The comments at their heads are the
pipeline's report: a line for each region and each call group. After a deliberate change:
`pytest tests/test_golden.py --write-goldens`, then read `git diff tests/golden`.
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

from canonical_text import canonical_text
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.pattern import Table, load_tables
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.report import Region, Report
from processor import HAS_AVX512, lacks_integers, skip_without
from side_by_side import assert_close, run_module

GOLDEN = Path(__file__).with_name("golden")
ACCEPTED = sorted(GOLDEN.glob("*/*.before.hlo"))
REFUSED = sorted(GOLDEN.glob("*/*.refused.hlo"))
NAMES = {
    "f32": "float32", "bf16": "bfloat16", "f16": "float16", "pred": "bool", "s32": "int32", "s8": "int8", "u8": "uint8",
    "s4": "int4", "s16": "int16", "u32": "uint32", "c64": "complex64", "f64": "float64",
}  # fmt: skip
INTEGERS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "s16": (-32768, 32768), "u32": (0, 1 << 32)}
BINARY_SIGNS = {
    "add": " + ", "subtract": " - ", "multiply": " · ", "divide": " / ", "maximum": " max ", "minimum": " min ",
}  # fmt: skip
USUAL_REASON = 'the policy "always" takes every kernel that can compute the region'
USUAL_END = "the value is needed in memory"


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
        *table().recurrents,
        *table().group_norms,
        *table().elementwise,
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

    proto, report = pipeline().run(serialized, details=True)
    skip_where_the_processor_lacks(before, report)
    assert proto is not None, report_lines(report)
    verify(Module.from_bytes(proto))
    check(after(before), report, canonical_text(proto), request)
    assert shows(before.parent.name, report), "the case does not show its entry"

    assert pipeline().run(proto)[0] is None, "dispatching the output again changes it"

    inputs, results = signature(module)
    with jax.enable_x64("f64[" in before.read_text()):
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
    if before.parent.name.startswith("integer_") and lacks_integers():
        pytest.skip(lacks_integers())
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
def test_refused(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    serialized = hlo_text.from_text(text)
    verify(Module.from_bytes(serialized))

    proto, report = pipeline().run(serialized, details=True)
    module = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("//"))
    check(path, report, module, request)
    assert not shows(path.parent.name, report), "the case shows its entry"
    assert (proto is None) == (not report.dispatched)


# --- reports ------------------------------------------------------------------------------------------------


def check(path: Path, report: Report, module: str, request: pytest.FixtureRequest) -> None:
    """Compare a report and a module with a file, or write them there."""
    expected = "".join(f"// {line}\n" for line in report_lines(report)) + module
    if request.config.getoption("write_goldens"):
        path.write_text(expected)
    assert path.read_text() == expected


def report_lines(report: Report) -> list[str]:
    """The report of a module: its regions, then its call groups."""
    groups = [f"%{group.name}: {group.calls} calls, {group.inner} intermediate values" for group in report.sequences]
    return [*map(region_line, report.regions), *groups] or ["nothing to report"]


def region_line(region: Region) -> str:
    """A refusal as it is, or the table's entry, the formula and the call; then what is unusual about it."""
    if region.refusal is not None:
        return f"%{region.name}: {region.refusal}"
    line = f"%{region.name} by %{region.call}: {region.entry}, {region.formula}, {region.shape}"
    if region.stopped_at:
        line += f"; the epilogue stops at %{region.stopped_at}: {region.stopped_because}"
    elif region.stopped_because not in ("", USUAL_END):
        line += f"; the epilogue stops: {region.stopped_because}"
    reason = region.reason.removeprefix(USUAL_REASON).removeprefix("; ")
    return f"{line}; {reason}" if reason else line


def shows(entry: str, report: Report) -> bool:
    """Whether a dispatched region makes use of this entry of the table."""
    if any(region.entry == entry for region in report.dispatched):
        return True
    sign = re.escape(BINARY_SIGNS[entry]) if entry in BINARY_SIGNS else rf"\b{entry}[(\[]"
    return any(re.search(sign, region.formula) for region in report.dispatched)
