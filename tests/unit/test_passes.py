"""The list of passes: their order for each way in, what each changed, verification behind each, and the dump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_dispatch.api import pipeline
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir import attributes, module_files
from hlo_dispatch.ir.kernel_call import is_kernel_call
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text, to_text
from hlo_dispatch.passes import pass_dump
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.pass_runner import Pass, run_passes
from hlo_dispatch.pipeline import FROZEN, JIT, REGION, SPLIT
from hlo_dispatch.report import PassRun
from processor import needs_avx512

PRODUCT = """HloModule product
ENTRY main {
  x = f32[64,256]{1,0} parameter(0)
  w = f32[256,256]{1,0} parameter(1)
  b = f32[256]{0} parameter(2)
  d = f32[64,256]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = f32[64,256]{1,0} broadcast(b), dimensions={1}
  ROOT sum = f32[64,256]{1,0} add(d, bs)
}
"""
GOLDENS = Path(__file__).parents[1] / "golden"
NOTHING = "HloModule nothing\nENTRY main { ROOT x = f32[4]{0} parameter(0) }"


def names(passes: Sequence[Pass | PassRun]) -> list[str]:
    return [one.name for one in passes]


def test_every_pass_of_a_module_that_is_compiled() -> None:
    result, report = pipeline((), "always").run(from_text(PRODUCT))
    assert result is not None
    assert names(report.passes) == ["parse", *names(JIT), "serialize"]
    changed = {run.name: run.changed for run in report.passes if run.changed}
    assert changed == {"lower": ("main",)}
    assert report.passes[0].instructions == report.instructions == 6
    assert list(report.stages) == names(report.passes)
    assert 0 < sum(report.stages.values()) <= report.seconds


GROUPED = ("concatenation/dense_block", "convolution/stepped_over", "rectifying/residual")


@pytest.mark.parametrize("golden", GROUPED)
def test_later_passes_take_a_call_as_the_value_that_it_is(golden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stride propagation, call grouping and what follows parse no attributes of a call that `lower` made."""

    def refused(text: str) -> None:
        raise AssertionError(text)

    serialized = from_text((GOLDENS / f"{golden}.before.hlo").read_text())
    monkeypatch.setattr(attributes, "from_text", refused)
    result, report = pipeline((), "always").run(serialized)
    assert result is not None
    assert report.sequences


def test_nothing_runs_behind_a_module_without_a_match() -> None:
    for text, policy in ((NOTHING, "always"), (PRODUCT, "never")):
        result, report = pipeline((), policy).run(from_text(text))
        assert result is None
        assert names(report.passes) == (
            ["parse"] if text is NOTHING else ["parse", *names(JIT)[: names(JIT).index("lower") + 1]]
        )


def test_a_frozen_module_is_split_by_further_passes() -> None:
    split = replace(pipeline((), "always"), frozen=frozenset((1, 2))).freeze(Module.from_bytes(from_text(PRODUCT)))
    assert split.report is not None
    assert names(split.report.passes) == [*names(FROZEN), *names(SPLIT)]
    changed = {run.name for run in split.report.passes if run.changed}
    assert {"lower", "prepacking", "partition"} <= changed
    assert split.prologue is not None
    assert [value.is_prepacked for value in split.preprocessed] == [True]


_CONVOLUTION = (
    "f32[2,13,11,24]{{3,2,1,0}} convolution({}, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f"
)
RESIDUAL = f"""HloModule residual
ENTRY main {{
  x = f32[2,13,11,24]{{3,2,1,0}} parameter(0)
  w = f32[3,3,24,24]{{3,2,1,0}} parameter(1)
  a = {_CONVOLUTION.format("x")}
  b = {_CONVOLUTION.format("a")}
  c = {_CONVOLUTION.format("b")}
  sum = f32[2,13,11,24]{{3,2,1,0}} add(c, a)
  d = {_CONVOLUTION.format("sum")}
  ROOT e = {_CONVOLUTION.format("d")}
}}
"""
"""Convolutions in a row, of which the third adds what the first gave."""


@needs_avx512
def test_passes_over_call_groups_follow_one_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each leaves a module that is right: buffers of their own, then one for a sum, then shared ones."""
    monkeypatch.setenv(pass_dump.VARIABLE, str(tmp_path))
    assert pipeline((), "always").run(from_text(RESIDUAL))[0] is not None
    found: dict[str, tuple[list[int], int]] = {}
    for path in sorted(tmp_path.iterdir()):
        module = Module.from_bytes(from_text(path.read_text()))
        for call in map(module.kernel_call, filter(is_kernel_call, module.entry.instructions)):
            if "members" in call.attributes:
                found[path.name.split(".")[-2]] = call.attributes["offsets"], call.attributes["scratch"]
    place = found["call-grouping"][0][1]
    assert {step: offsets for step, (offsets, _) in found.items()} == {
        "call-grouping": [0, place, 2 * place, 3 * place],
        "in-place-sums": [0, place, 0, 3 * place],
        "buffer-assignment": [0, place, 0, place],
    }
    (_, apart), (_, summed), (_, shared) = found.values()
    assert apart == summed == shared + 2 * place


def test_a_region_is_measured_as_a_module_is_compiled() -> None:
    others = (
        "result tuples",
        "accumulation code motion",
        "input product code motion",
        "gathering of small loops",
        "in-place parts",
        "narrow stacks",
        "loop weights",
        "prepacking",
        "loop-invariant code motion",
        "huge-page advice",
    )
    assert names(REGION) == [name for name in names(JIT) if name not in others]


def test_a_pass_that_breaks_a_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def breaking(module: Module, _: PassContext) -> set[int]:
        module.entry.instructions[-1].operand_ids[0] = 12345
        ran.append("breaking")
        return {module.entry.id}

    def later(_: Module, __: PassContext) -> set[int]:
        ran.append("later")
        return set()

    passes, context = (Pass("breaking", breaking), Pass("later", later)), PassContext(pipeline((), "always").planner)
    with pytest.raises(ModuleError, match="behind the pass breaking: "):
        run_passes(passes, Module.from_bytes(from_text(PRODUCT)), context)
    assert ran == names(context.runs) == ["breaking"]
    monkeypatch.setenv("HLO_DISPATCH_STRICT", "0")
    assert run_passes(passes, Module.from_bytes(from_text(PRODUCT)), context), "only the last pass verifies then"


def test_a_module_is_dumped_behind_each_pass_that_changed_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(pass_dump.VARIABLE, str(tmp_path / "new" / "folder"))
    result, _ = pipeline((), "always").run(from_text(PRODUCT))
    assert result is not None
    before, after = sorted((tmp_path / "new" / "folder").iterdir())
    assert before.name.startswith("product.")
    assert before.name.endswith(".00.input.hlo")
    assert after.name.endswith(".01.lower.hlo")
    assert "custom-call" not in before.read_text()
    assert after.read_text() == to_text(result)
    pipeline((), "always").run(from_text(PRODUCT))
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 4, "each run has files of its own"


def test_what_is_not_printed_is_dumped_as_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(serialized: bytes) -> str:
        raise ModuleError("no printer")

    monkeypatch.setattr(pass_dump, "to_text", refused)
    monkeypatch.setenv(pass_dump.VARIABLE, str(tmp_path))
    result, _ = pipeline((), "always").run(from_text(PRODUCT))
    *_, after = sorted(tmp_path.iterdir())
    assert after.name.endswith(".01.lower.hlo.pb")
    assert module_files.read_module(str(after)) == result


def test_a_directory_that_is_none_is_said_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(pass_dump.VARIABLE, str(tmp_path / "file"))
    for _ in range(2):
        assert pipeline((), "always").run(from_text(PRODUCT))[0] is not None
    (record,) = caplog.records
    assert record.getMessage().startswith(f"HLO_DISPATCH_DUMP_PASSES is {tmp_path / 'file'}, where no module")
