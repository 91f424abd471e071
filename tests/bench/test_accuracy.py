"""`bench accuracy`: a tiny character model, trained for some steps, in each format of weights."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hlo_dispatch.bench import accuracy

pytestmark = [pytest.mark.any_python, pytest.mark.usefixtures("_compiled_quickly")]


def test_formats_change_the_perplexity_little() -> None:
    plan = accuracy.AccuracyPlan(steps=60, batches=1, layers=1, width=64)
    entries = list(accuracy.run(plan, lambda _: None))
    found = {entry["name"]: entry["perplexity"] for entry in entries}
    assert list(found) == [
        "f32", "bf16", "int8", "int8, activations int8", "int4", "int4, activations int8",
    ]  # fmt: skip
    assert 1 < found["f32"] < 40, "it has learned which characters are frequent"
    assert found["int8, activations int8"] != found["int8"]
    for name, most in (("bf16", 0.01), ("int8", 0.01), ("int8, activations int8", 0.01), ("int4", 0.1)):
        assert found[name] != found["f32"]
        assert abs(found[name] / found["f32"] - 1) < most, name
    target = Console(file=io.StringIO(), width=200)
    accuracy.print_accuracy(target, entries)
    text = target.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "pydoc_data.topics" in text
    assert "int4" in text
