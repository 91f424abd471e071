"""Refusal matrix: each kind of match against each reason to refuse it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

import hlo_dispatch
from hlo_dispatch.errors import REFUSALS, Refusal, Unavailable
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.report import Region, Report
from processor import needs_avx512
from refusal_attentions import ATTENTIONS
from refusal_cases import (
    GOLDEN,
    KINDS,
    MACHINE,
    MATRIX,
    UNREPORTED,
    Base,
    Column,
    bases,
    enlarged,
    order,
    pipeline,
    table,
    unfused,
)
from refusal_sentences import ANCHORS, ENTRIES, ROUTINES

pytestmark = needs_avx512

CELLS = [
    pytest.param(kind, column, MATRIX[column].codes[group], id=f"{kind}-{column}")
    for group, kinds in KINDS.items()
    for kind in kinds
    for column in MATRIX
    if group in MATRIX[column].codes
]


def modules(kind: str, column: Column) -> Iterator[tuple[Base, bytes]]:
    """The kind's goldens as the column changes them; larger ones for what is asked only of large matches."""
    yield from ((base, column.mutate(base)) for base in bases(kind))
    if column.pipeline in ("slower", "wrong", "lost"):
        yield from ((base, enlarged(base)) for base in bases(kind))


def code_of(region: Region | None) -> str | None:
    """The refusal's code; None where a kernel computes the region."""
    if region is None:
        return UNREPORTED
    return None if region.refusal is None else region.refusal.code


@lru_cache(maxsize=1024)
def outcome(kind: str, name: str, code: str) -> tuple[str | None, Report]:
    """The first golden that gives the code, else the last one: the code that it gives, and the report."""
    found: str | None = None
    report = Report("")
    for base, module in modules(kind, MATRIX[name]):
        result, report = pipeline(MATRIX[name].pipeline).run(module)
        region = next((region for region in report.regions if region.name == base.region), None)
        found = code_of(region)
        check(module, result, report)
        if found == code:
            break
    return found, report


def check(module: bytes, result: bytes | None, report: Report) -> None:
    """Every refusal says why, and names an instruction; the region is still there afterwards, or in another one."""
    before, after = (names_in(serialized) for serialized in (module, module if result is None else result))
    assert (result is None) == (not report.dispatched)
    after |= {name for region in report.dispatched for name in region.covered}
    for region in report.left:
        assert region.refusal is not None
        assert region.refusal.sentence
        assert region.refusal.instruction in before, str(region.refusal)
        assert region.name in after, str(region.refusal)


def names_in(serialized: bytes) -> set[str]:
    return {i.name for i in Module.from_bytes(serialized).instructions}


@pytest.mark.parametrize(("kind", "column", "code"), CELLS)
def test_a_cell_of_the_matrix(kind: str, column: str, code: str) -> None:
    found, _ = outcome(kind, column, code)
    assert found == code


@pytest.mark.parametrize("kind", [kind for group, kinds in KINDS.items() if group != "glue op" for kind in kinds])
def test_a_missing_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = bases(kind)[0]
    monkeypatch.setattr("hlo_dispatch.vendor.libraries.loaded", lambda name: Unavailable(name, f"install {name}"))
    result, report = pipeline("always").run(base.module)
    check(base.module, result, report)
    region = next(region for region in report.regions if region.name == base.region)
    assert code_of(region) == "library-missing"
    assert "install" in region.reason


SCORE_STEPS = {
    "scale": "f32",
    "add": "bias_softcap",
    "select": "lengths",
    "causal": "grouped_causal",
    "window": "window",
    "softcap": "bias_softcap",
}


@pytest.mark.parametrize("kind", table().attentions[0].score_steps)
def test_a_score_step_that_the_table_does_not_have(kind: str) -> None:
    (attention,) = table().attentions
    others = {name: step for name, step in attention.score_steps.items() if name != kind}
    fewer = replace(table(), attentions=(replace(attention, score_steps=others),))
    module = hlo_text.from_text((GOLDEN / "attention" / f"{SCORE_STEPS[kind]}.before.hlo").read_text())
    report = Pipeline.make(fewer, "always", MACHINE).run(module)[1]
    refusals = [region.refusal for region in report.left if region.refusal is not None]
    assert f"own.attention has no score step of the kind {kind}" in [refusal.sentence for refusal in refusals]


@pytest.mark.parametrize("kind", [kind for kinds in KINDS.values() for kind in kinds])
def test_no_control_dependency_is_lost(kind: str) -> None:
    """Whichever instruction of a match must run after another one: afterwards something still does."""
    for base in bases(kind)[:3]:
        for number, instruction in enumerate(unfused(base).entry.instructions):
            if instruction.opcode in ("parameter", "constant", "tuple", "bitcast", "transpose"):
                continue
            module = unfused(base)
            earlier = order(module, module.entry.instructions[number])
            result, _ = pipeline("always").run(module.to_bytes())
            after = module if result is None else Module.from_bytes(result)
            assert any(earlier in i.control_predecessor_ids for i in after.entry.instructions), instruction.name


UNREACHED = {
    "library-missing": "test_a_missing_library has it for every kind",
    "unmeasurable": "why a region was not measured, which no report says: tests/selection/test_region.py",
    "outranked": "tests/pattern/test_structural_planning.py",
}


def test_every_code_has_a_case() -> None:
    """In the matrix, a refused golden or `refusal_sentences`; otherwise here is where it is tested."""
    codes = {refusal.code for refusal in reported_refusals()} | {case.code for case in ANCHORS}
    assert sorted(set(REFUSALS) - codes) == sorted(UNREACHED)


def test_every_sentence_has_a_case() -> None:
    """Likewise for each sentence that is written in the match package."""
    given = (*ANCHORS, *ENTRIES, *ATTENTIONS, *ROUTINES, *reported_refusals())
    missing = [
        (place, code, sentence)
        for place, code, sentence in written_sentences()
        if not any(code == case.code and re.fullmatch(sentence, case.sentence) for case in given)
    ]
    assert missing == []


def reported_refusals() -> list[Refusal]:
    """The refusals of the matrix and of the refused goldens."""
    reports = [outcome(*cell.values)[1] for cell in CELLS]
    reports += [pipeline("always").run(hlo_text.from_text(p.read_text()))[1] for p in GOLDEN.glob("*/*.refused.hlo")]
    return [region.refusal for report in reports for region in report.left if region.refusal is not None]


def written_sentences() -> Iterator[tuple[str, str, str]]:
    """Where a refusal of the match package is written, its code, and a regular expression of its sentence."""
    folder = Path(hlo_dispatch.__file__).parent / "match"
    for path in sorted(folder.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                yield from _sentences_of(function, path.relative_to(folder))


def _sentences_of(function: ast.FunctionDef, path: Path) -> Iterator[tuple[str, str, str]]:
    sentence: ast.expr | None = None
    for part in sorted(ast.walk(function), key=lambda part: getattr(part, "lineno", 0)):
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name) and part.targets[0].id == "sentence":
            sentence = part.value
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "Refusal":
            code, written = part.args[0], part.args[1]
            if isinstance(written, ast.Name) and sentence is not None:
                written = sentence
            if isinstance(code, ast.Constant):
                yield f"{path}:{part.lineno}", str(code.value), _expression(written)


def _expression(sentence: ast.expr) -> str:
    if isinstance(sentence, ast.Constant):
        return re.escape(str(sentence.value))
    if isinstance(sentence, ast.JoinedStr):
        return "".join(_expression(part) if isinstance(part, ast.Constant) else ".*" for part in sentence.values)
    return ".*"
