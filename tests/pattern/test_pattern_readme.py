"""patterns/README.md is the language's reference: nothing missing, nothing stale, and its examples load."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import BaseModel

from hlo_dispatch.pattern import Recogniser, load_tables, schema, shipped_tables
from hlo_dispatch.pattern.constraints import CONSTRAINTS
from hlo_dispatch.pattern.functions import FUNCTIONS
from hlo_dispatch.pattern.read_expression import read_expression
from hlo_dispatch.pattern.reference import reference

README = (shipped_tables()[0].parent / "README.md").read_text()


def test_its_reference_is_what_the_schema_writes() -> None:
    """If it is not: put what `hlo-dispatch patterns reference` prints in the place of the README's last part."""
    assert README[README.index("## Reference\n") :] == reference()


def test_the_reference_has_every_key_of_every_entry() -> None:
    entries = [kind for kind in vars(schema).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    described = [kind for kind in entries if kind.__module__ == schema.__name__ and not kind.__name__.startswith("_")]
    assert len(described) > 10
    for kind in described:
        for name, field in kind.model_fields.items():
            assert field.description, f"{kind.__name__}.{name}"
            assert f"{name}** | {field.description} |" in README or f"| {name} | {field.description} |" in README


def test_every_function_is_listed() -> None:
    listed = re.search(r"and\n\n`(.*?)`\n", README, re.DOTALL)
    assert listed
    assert re.findall(r"\w+", re.sub(r"\(.*?\)", "", listed[1])) == sorted(FUNCTIONS)


def test_its_pattern_loads(tmp_path: Path) -> None:
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "patterns:" in text)
    (tmp_path / "mine.yaml").write_text(example)
    (tmp_path / "libmine.so").touch()
    table = load_tables([tmp_path / "mine.yaml"])
    (pattern,) = [pattern for pattern in table.patterns if pattern.is_user_defined]
    assert (pattern.name, pattern.priority, pattern.is_user_defined) == ("gated_residual", 2, True)
    assert table.kernels["mine.gated_residual"].path == tmp_path / "libmine.so"


def test_its_expressions_are_read() -> None:
    blocks = re.findall(r"^  match: \|\n((?:    .*\n)+)", README, re.MULTILINE)
    activations = {a.name: tuple(p.name for p in a.parameters) for a in load_tables().activations}
    assert [read_expression(textwrap.dedent(block), activations).size for block in blocks] == [3, 10]


def test_its_anchor_loads(tmp_path: Path) -> None:
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "anchors:" in text)
    (tmp_path / "mine.yaml").write_text(example)
    anchor = load_tables([tmp_path / "mine.yaml"]).anchors["product_with_relu"]
    assert (anchor.op_kind, anchor.activations, anchor.binaries, anchor.priority) == ("product", ("relu",), (), 1)


def test_what_may_be_written_for_a_constraint_is_what_is_read() -> None:
    """Every example of the reference is taken, and each constraint on dimensions says which there are."""
    for constraint in CONSTRAINTS.values():
        for example in re.findall(r"`(.*?)`", constraint.takes):
            constraint.read(yaml.safe_load(example))
    (along,) = re.findall(r"^\| `along` \|.*\|(.*)\|$", README, re.MULTILINE)
    assert {"`last`", "`any`", "`[0, 2]`", "`[-1]`"} <= set(re.findall(r"`.*?`", along))


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
