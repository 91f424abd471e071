"""Real models at their real sizes: as many anchors are dispatched as `anchors.toml` says, and the rest say why.

A quick part by default; `--zoo all` counts every model and runs all the small variants.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_dispatch.bench.zoo import record
from hlo_dispatch.bench.zoo.count import capture, count, left, reasons
from hlo_dispatch.bench.zoo.models import ZOO
from hlo_dispatch.bench.zoo.numbers import numbers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

RECORDS = record.read()
# One network of convolutions with every kind of epilogue, one transformer with a convolution in front.
QUICK_NUMBERS = ("efficientnetb0", "whisper-encoder")


@pytest.fixture
def only_quick(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--zoo") == "quick"


@pytest.mark.parametrize("name", ZOO)
def test_anchors_are_dispatched_as_recorded(name: str, only_quick: bool) -> None:
    if only_quick and not ZOO[name].quick:
        pytest.skip("counted with --zoo all")
    _import(name)
    counts, report = count(capture(ZOO[name].lowered()))
    said = "\n".join(reasons(report))
    # What is gone from the module is what the report says was dispatched, and the rest has its reasons.
    assert sum(counts.left.values()) == sum(counts.anchors.values()) - sum(counts.dispatched.values()), said
    for region in left(report):
        assert region.refusal is not None
        assert " " in region.refusal.sentence, region
    recorded = RECORDS[name].get(record.this_jax())
    if recorded is not None:
        assert counts == recorded, f"{said}\nIf that is as it should be: python -m bench.zoo --write {name}"
        return
    # A jax that nobody has counted with may have other anchors, but we leave no more of them behind.
    known = max(sum(counts.left.values()) for counts in RECORDS[name].values())
    assert sum(counts.left.values()) <= known, said


@pytest.mark.parametrize("name", [name for name, model in ZOO.items() if model.dtype == "float32" and model.small])
def test_small_variants_give_the_same_numbers(name: str, only_quick: bool) -> None:
    if only_quick and name not in QUICK_NUMBERS:
        pytest.skip("run with --zoo all")
    _import(name)
    found = numbers(name)
    assert found.good, found


def test_every_model_is_recorded() -> None:
    assert set(RECORDS) == set(ZOO)
    assert Path(record.FILE).parent == Path(__file__).parent


def _import(name: str) -> None:
    for module in ZOO[name].needs:
        pytest.importorskip(module)
