"""Loading: the shipped table, users' tables beside it, and exact messages for broken ones."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern import Table, load, load_tables, shipped_tables
from hlo_dispatch.pattern.algorithms import meaning

BAD = sorted((Path(__file__).parents[1] / "bad_tables").glob("*.yaml"))
GOOD = """\
version: 1
activations:
  quick_gelu:
    formula: x * sigmoid(1.702 * x)
    onednn: {algorithm: swish, alpha: 1.702}
    origin: CLIP
"""


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_broken_table_says_exactly_what_is_wrong(path: Path) -> None:
    with pytest.raises(TableError) as caught:
        load_tables([path])
    message = str(caught.value).replace(f"{path.parent}/", "").replace(f"{shipped_tables()[0].parent}/", "patterns/")
    assert message + "\n" == path.with_suffix(".err").read_text()
    assert caught.value.exit_status == 2


def test_shipped_table(table: Table) -> None:
    between = {"concatenation", "rectifying", "scaling", "whole_window"}
    assert set(table.anchors) - between == {
        "convolution",
        "dot",
        "pooling",
        "transposed_convolution",
        "weights_gradient",
        "narrow_product",
        "integer_convolution",
        "integer_product",
        "double_convolution",
        "wrapping_product",
    }
    bound = {kernel for anchor in table.anchors.values() for kernel in (anchor.kernel, *anchor.alternative_kernels)}
    bound |= {kernel for routine in table.routines for kernel in routine.kernels}
    bound |= {pattern.kernel for pattern in table.patterns}
    bound |= {attention.kernel for attention in table.attentions}
    bound |= {entry.kernel for entry in (*table.recurrents, *table.group_norms, *table.elementwise)}
    assert set(table.kernels) - bound == {
        "onednn.pack",
        "onednn.sequence",
        "onemkl.pack",
        "own.huge_pages",
        "own.pack",
    }, "which serve calls of others"
    assert bound <= set(table.kernels)
    assert set(table.binaries) == {"add", "subtract", "multiply", "divide", "maximum", "minimum"}
    assert table.binaries["divide"].algorithm == "div"
    assert table.kernels["onednn.matmul"].target == "hlo_dispatch.onednn.matmul"
    assert "relu" in table.anchors["dot"].activations
    assert "add" in table.anchors["dot"].binaries
    assert table.activation("gelu_erf").describe() == "gelu_erf"
    assert table.activation("clip").describe() == "clip(low, high)"
    assert table.activation("clip").describe({"low": 0.0, "high": 6.0}) == "clip(0, 6)"
    assert table.sources == shipped_tables()
    names = {source.stem for source in table.sources}
    assert names >= {"activations", "anchors", "binaries", "fourier", "kernels", "linear_algebra"}
    assert str(table.activation("relu").location).startswith(f"{shipped_tables()[0].parent}/activations.yaml:")


def test_reversed_binaries_compute_what_they_say(table: Table) -> None:
    y, other = np.array([0.5, -2.0, 3.0]), np.array([4.0, 1.5, -2.0])
    for opcode, expected in (("subtract", other - y), ("divide", other / y)):
        swapped = table.binaries[opcode].reversed
        assert swapped is not None
        assert swapped.first.alpha is not None
        assert swapped.first.beta is not None
        alpha, beta = swapped.first.alpha.evaluate({}), swapped.first.beta.evaluate({})
        first = meaning(swapped.first.algorithm).evaluate({"x": y, "alpha": alpha, "beta": beta})
        assert np.allclose({"add": first + other, "mul": first * other}[swapped.then], expected, rtol=1e-15)


def test_a_users_table_comes_after_the_shipped_one(tmp_path: Path, table: Table) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(GOOD)
    for paths in ([mine], [tmp_path], str(mine), mine, [str(mine), mine]):
        loaded = load_tables(paths)
        assert loaded.activations[-1].name == "quick_gelu"
        assert "quick_gelu" in loaded.anchors["dot"].activations
        assert loaded.sources == (*table.sources, mine)
        assert loaded.fingerprint != table.fingerprint


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(GOOD)
    first = load_tables([mine])
    assert load_tables([mine]) is first
    mine.write_text(GOOD.replace("quick_gelu", "fast_gelu"))
    second = load_tables([mine])
    assert second.activations[-1].name == "fast_gelu"
    assert second.fingerprint != first.fingerprint


def test_a_name_in_two_files_names_both(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(TableError) as caught:
        load_tables([tmp_path])
    assert str(caught.value) == (
        f"{tmp_path}/b.yaml:3:3: 'quick_gelu' is already in activations; "
        f"the first is at {tmp_path}/a.yaml:3:3; choose another name"
    )


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.yaml:1:1: there is no such table; check the path"):
        load_tables([tmp_path / "none.yaml"])
    with pytest.raises(TableError, match="no tables in this folder"):
        load_tables([tmp_path])


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 300_000,
        "{a: " * 50_000,
        "a: &a [1]\nb: [*a, *a]\n",
        "a: &a [*a]\n",
        "version: 1\n\0",
        "version: 1\n# \x07",
        "? [a]\n: 1",
        "<<: {version: 1}",
        "version: true",
        "version: 1.0",
        "version: " + "1" * 5000,
        "version: 1\nkernels: [a]",
        "x" * (1 << 20) + "x",
        "version: 1\n" + "a: b: c\n",
        "%YAML 9.9\n---\nversion: 1\n",
        "version: 1\nactivations: {a: {formula: x, onednn: {algorithm: relu, alpha: [1]}, origin: x}}",
    ],
    ids=range(16),
)
def test_hostile_tables_are_table_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(text)
    with pytest.raises(TableError) as caught:
        load_tables([path])
    assert len(str(caught.value)) < 500


def test_yaml_1_2_scalars(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(GOOD.replace("CLIP", "no").replace("1.702}", "17.02e-1}"))
    assert load_tables([mine]).activations[-1].origin == "no"


def test_importing_the_room_reads_nothing() -> None:
    code = "import sys, hlo_dispatch.pattern; print([m for m in ('pydantic', 'yaml') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.timing
def test_loading_is_fast() -> None:
    def fresh() -> None:
        load._load.cache_clear()
        load_tables()

    texts = [path.read_text() for path in shipped_tables()]
    parsing = fastest(lambda: [yaml.compose(text, yaml.CSafeLoader) for text in texts])
    assert fastest(fresh) < 12 * parsing, "it was three to five times as long as YAML's part of it"


def fastest(work: Callable[[], object]) -> float:
    """Seconds, the best of five."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)
