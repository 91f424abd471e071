"""`bench everyday`: operations are right, peers take turns, and a row that falls short is marked."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from hlo_dispatch.bench import everyday
from hlo_dispatch.bench.everyday_programs import KINDS, OPERATIONS, WIDE, drawn
from hlo_dispatch.report.terminal import console

pytestmark = [pytest.mark.any_python, pytest.mark.usefixtures("_compiled_quickly")]


def test_rows_have_times_of_all_that_run() -> None:
    plan = everyday.EverydayPlan(
        kinds=("reductions",), elements=(300,), dtypes=("f64",), policy="always", seconds=0.001
    )
    entries = list(everyday.run(plan, lambda _: None))
    assert {entry["verdict"] for entry in entries} == {"right"}, entries
    assert all({"stock", "ours", "NumPy"} <= set(entry["seconds"]) for entry in entries)
    everyday.print_everyday(console(), entries)


COMPARED = [operation for operation in OPERATIONS if operation.numpy and operation.kind != "random"]


@pytest.mark.parametrize("kind", KINDS)
def test_jax_and_numpy_agree(kind: str) -> None:
    """Both libraries' functions are one operation."""
    for operation in COMPARED:
        if operation.kind != kind or operation.name == "permutation":
            continue
        with jax.enable_x64(True):
            made = everyday.program(operation, operation.dtypes[-1] if operation.dtypes == WIDE else "f32", 1200, False)
            ours = np.asarray(jax.jit(made.function)(*made.arguments))
            numbers = [np.asarray(argument) for argument in made.arguments]
        assert operation.numpy is not None
        np.testing.assert_allclose(ours, operation.numpy(*numbers), rtol=1e-4, atol=1e-5, err_msg=operation.name)


def entry(calls: int, elements: int, **seconds: float) -> dict[str, Any]:
    return {"calls": calls, "elements": elements, "seconds": seconds}


def test_a_row_falls_short() -> None:
    assert not everyday.falls_short(entry(1, 1000, stock=1.0, ours=1.0, PyTorch=0.1))
    assert everyday.falls_short(entry(1, 1000, stock=1.0, ours=1.1, PyTorch=2.0))
    assert everyday.falls_short(entry(1, 100_000, stock=2.0, ours=1.2, PyTorch=1.0))
    assert not everyday.falls_short(entry(1, 100_000, stock=2.0, ours=1.0, PyTorch=1.05))
    # What is stock's program is not slower than it; only the machine was.
    assert not everyday.falls_short(entry(0, 1000, stock=1.0, ours=1.5))


def test_every_kind_of_operand_is_equal_in_each_process() -> None:
    for operation in OPERATIONS:
        for one, other in zip(drawn(operation, 500), drawn(operation, 500), strict=True):
            np.testing.assert_array_equal(one, other)
