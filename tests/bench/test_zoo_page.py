"""`bench.zoo`'s page: dispatched anchor ops by model, and each refusal once, with its models."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_dispatch.bench.zoo.count import OPCODES, Counts
from hlo_dispatch.bench.zoo.page import page, row, write
from hlo_dispatch.errors import Refusal
from hlo_dispatch.report import Region, Report

pytestmark = pytest.mark.any_python


def region(opcode: str, *, entry: str = "", refusal: Refusal | None = None) -> Region:
    kernel = "onednn.matmul" if refusal is None else None
    return Region(
        name=opcode, computation="main", opcode=opcode, formula=opcode, kernel=kernel, implementation=None,
        attributes={}, covered=(), op_name="", source="", reason="because", refusal=refusal, shape="f32[2]",
        entry=entry,
    )  # fmt: skip


def refused(opcode: str, instruction: str) -> Region:
    sentence = f"%{instruction}, which the kernel keeps nowhere, is also used by %add.{len(instruction)}"
    return region(opcode, refusal=Refusal("value-needed", sentence, instruction))


def counts(**taken: tuple[int, int]) -> Counts:
    numbers = {opcode: taken.get(opcode.replace("-", "_"), (0, 0)) for opcode in OPCODES}
    return Counts({o: n for o, (_, n) in numbers.items()}, {o: n for o, (n, _) in numbers.items()}, {})


def test_a_row_for_each_model_and_a_line_for_each_reason(tmp_path: Path) -> None:
    near = Refusal("near-miss", "16 of 19 operations matched")
    whole = Report("m", (region("dot", entry="dot"), region("exponential", entry="attention"),
                         region("divide", entry="softmax"), region("exponential", refusal=near)))  # fmt: skip
    part = Report("n", (refused("exponential", "exp.12"), refused("exponential", "exp.7"),
                        region("exponential", entry="attention"), refused("dot", "a|b")))  # fmt: skip
    rows = [row("bert", counts(dot=(3, 3)), whole), row("gradient", counts(dot=(5, 6), convolution=(1, 1)), part)]
    write(tmp_path / "zoo.md", rows)
    lines = (tmp_path / "zoo.md").read_text().splitlines()
    assert "| bert |  | 3 |  | 1 | 1 |" in lines
    assert "| gradient | 1 | 5 of 6 |  | 1 of 3 |  |" in lines
    why = "value-needed: %…, which the kernel keeps nowhere, is also used by %…"
    assert f"| attention | {why} | gradient (2) |" in lines
    assert sum(why in line for line in lines) == 1
    assert any(line.startswith("| dot | value-needed: %…\\|b, ") for line in lines)
    assert "zoo.md" in page(rows, "zoo.md")
