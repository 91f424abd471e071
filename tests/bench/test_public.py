"""`bench public`: every kind runs at tiny sizes, is right, and an entry says what is needed."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hlo_dispatch.bench import public
from hlo_dispatch.bench.programs import BenchProgram
from hlo_dispatch.bench.public_programs import KINDS
from hlo_dispatch.report.terminal import console

pytestmark = [pytest.mark.any_python, pytest.mark.usefixtures("_compiled_quickly")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_right(kind: str) -> None:
    entries = list(public.run([kind], policy="always", seconds=0.001, small=True, say=lambda _: None))
    assert entries
    for entry in entries:
        assert entry["verdict"] == "right", entry
        assert set(entry["seconds"]) == {"stock", "ours"}
    # What the policy "always" takes at tiny sizes.
    if kind in ("backward-window", "per-sample"):
        assert any(entry["calls"] for entry in entries), entries
    public.print_public(console(), entries)


def test_nan_is_wrong() -> None:
    program = BenchProgram("a sum", lambda x: x.sum(), (np.ones(3, "float32"),))
    (compared,) = public.errors(program, lambda x: (x.sum(),), lambda x: (x.sum() * np.float32(np.nan),))
    assert not compared.is_right


def test_each_result_has_a_tolerance_of_its_own() -> None:
    """What a rough result beside it may be off by says nothing of an exact one."""

    def results(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x * 2, x * 3

    program = BenchProgram("two results", results, (np.ones(3, "float32"),))
    rough, exact = public.errors(
        program, lambda x: (x * np.float32(2.1), x * 3), lambda x: (x * np.float32(2.1), x * np.float32(3.1))
    )
    assert rough.is_right
    assert not exact.is_right


@pytest.mark.parametrize(("off", "is_right"), [(1e-13, True), (1e-9, False)])
def test_what_stock_may_be_off_by_in_float64(off: float, is_right: bool) -> None:
    """A difference of nearly equal numbers: 1e4 times as many roundings as its operands."""

    def difference(x):
        return x + 1e4 - 1e4

    with jax.enable_x64(True):
        program = BenchProgram("a difference", difference, (np.asarray([1 / 3, 2 / 3]),))
        (compared,) = public.errors(program, lambda x: (difference(x),), lambda x: (difference(x) + off,))
    assert compared.is_right == is_right
