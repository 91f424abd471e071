"""`bench.first_result`: what is loaded where no model's code can be imported gives what was saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_dispatch.bench.first_result import Start, started

pytestmark = pytest.mark.any_python

ROOT = Path(__file__).parents[2]


def test_a_saved_model_is_loaded_without_its_code(tmp_path: Path) -> None:
    wanted = Start("bert", "f32", small=True)
    assert started("save", wanted, tmp_path, cached=False)["save"] > 0
    taken = started("loaded", wanted, tmp_path, cached=True)
    assert 0 < taken["ready"] + taken["first"] <= taken["whole"] + 1e-3
    assert list((tmp_path / "cache-loaded").iterdir())
