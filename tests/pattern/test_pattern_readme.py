"""patterns/README.md is the language's reference: nothing missing, nothing stale, and its examples load."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hlo_dispatch.pattern import Recogniser, load_tables, schema, shipped_tables
from hlo_dispatch.pattern.algorithms import ELTWISE
from hlo_dispatch.pattern.constraints import CONSTRAINTS
from hlo_dispatch.pattern.expression import OPERATIONS
from hlo_dispatch.pattern.facts import FACTS
from hlo_dispatch.pattern.functions import FUNCTIONS

README = (shipped_tables()[0].parent / "README.md").read_text()
MODELS = [
    schema.TableFile,
    schema.ActivationEntry,
    schema.ParameterEntry,
    schema.Eltwise,
    schema.BinaryEntry,
    schema.ReversedEntry,
    schema.AnchorEntry,
    schema.Epilogues,
    schema.NumericsEntry,
    schema.KernelEntry,
    schema.PatternEntry,
    schema.CallEntry,
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_is_described(model: type[schema.TableFile]) -> None:
    rows = [
        f"| {f'**{name}**' if field.is_required() else name} | {field.description} |\n"
        for name, field in model.model_fields.items()
    ]
    assert "| key | |\n|---|---|\n" + "".join(rows) in README


def test_every_function_and_algorithm_is_listed() -> None:
    listed = re.search(r"and\n\n`(.*?)`\n", README, re.DOTALL)
    assert listed
    assert re.findall(r"\w+", re.sub(r"\(.*?\)", "", listed[1])) == sorted(FUNCTIONS)
    for name, formula in ELTWISE.items():
        assert f"| `{name}` | `{formula}` |\n" in README


def test_every_constraint_fact_and_operation_is_listed() -> None:
    for name, constraint in CONSTRAINTS.items():
        of = f" (of {', '.join(f'`{word}`' for word in constraint.operations)})" if constraint.operations else ""
        assert f"| `{name}` | {constraint.sentence.replace('{}', '…')}{of} |\n" in README
    for name, fact in FACTS.items():
        assert f"| `{name}` | {fact.type} | {fact.sentence} |\n" in README
    assert f"`{' '.join(sorted(OPERATIONS))}`\n" in README


def test_its_pattern_loads(tmp_path: Path) -> None:
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "patterns:" in text)
    (tmp_path / "mine.yaml").write_text(example)
    (tmp_path / "libmine.so").touch()
    table = load_tables([tmp_path / "mine.yaml"])
    (pattern,) = table.patterns
    assert (pattern.name, pattern.priority, pattern.is_users) == ("gated_residual", 2, True)
    assert table.kernels["mine.gated_residual"].path == tmp_path / "libmine.so"


def test_its_first_example_works_as_it_says(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)[0]
    (tmp_path / "mine.yaml").write_text(example)
    recogniser = Recogniser(load_tables([tmp_path / "mine.yaml"]).activations)
    x = recogniser.probes([0.5, 0.851])
    with np.errstate(all="ignore"):
        spellings = (x / (1 + np.exp(-1.702 * x)), x * 0.5 * (1 + np.tanh(0.851 * x)))
        for values in spellings:
            found = recogniser.recognise(x, values, 2e-6)
            assert found is not None
            assert (found.name, found.alpha) == ("quick_gelu", pytest.approx(1.702))
