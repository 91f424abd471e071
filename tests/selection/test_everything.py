"""A whole program tried with every region in a kernel: what is taken then, and what is not."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.api import rewriter
from hlo_dispatch.autotune.extract.region import Cutter
from hlo_dispatch.autotune.measurement_requests import Wanted
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.pipeline import Rewriter
from hlo_dispatch.selection.measurements import EVERYTHING, REGARDLESS, STOCK, TAKEN, Knowledge, Measured


def small_products(rows: int = 16, size: int = 48) -> bytes:
    """Three products in a row that the heuristic leaves to stock."""

    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(3):
            x = jnp.tanh(x @ w)
        return x

    arguments = jnp.ones((rows, size)), jnp.ones((size, size))
    return hlo_text.from_text(jax.jit(program).lower(*arguments).compile().as_text())


def knowing(known: dict[str, Measured], mode: str) -> Rewriter:
    return replace(rewriter((), "stored").knowing(Knowledge(known)), mode=mode)


def regions_of(module: bytes) -> list[str]:
    """What stands for each region in the store."""
    plain = rewriter((), "stored")
    parsed = Module.from_bytes(module)
    wanted = Wanted(parsed, plain.table, Knowledge())
    graph = FlatGraph(parsed, parsed.entry)
    plain.planner.plan(graph, wanted.recall_in(graph), small=False)
    return [region.digest for region in wanted.take()]


def test_what_the_heuristic_leaves_is_taken() -> None:
    module = small_products()
    _, guessed = knowing({}, "guessed").run(module)
    assert not guessed.dispatched
    _, everything = knowing({}, EVERYTHING).run(module)
    assert len(everything.dispatched) == 3
    assert [sequence.calls for sequence in everything.sequences] == [3]
    assert "fastest with every region in a kernel" in everything.dispatched[0].reason


@pytest.mark.parametrize(
    ("measured", "modes"),
    [
        (Measured(STOCK, {STOCK: 1e-3, "plain": 1.6e-3}), {EVERYTHING, REGARDLESS}),
        (Measured(STOCK, {STOCK: 1e-3, "plain": 2.5e-3}), {REGARDLESS}),
        (Measured(STOCK, {STOCK: 1e-3, "plain": 0.5e-3}, refused={"plain": "off by 3"}), set()),
        (Measured(STOCK, {STOCK: 1e-3}, endless=2.0), set()),
        (Measured(STOCK, {}, vain=2), {EVERYTHING, REGARDLESS}),
        (Measured(STOCK, {}, vain=2, endless=2.0), set()),
    ],
    ids=["lost", "lost by far", "wrong", "endless", "in vain", "in vain for it does not end"],
)
@pytest.mark.parametrize("mode", [EVERYTHING, REGARDLESS])
def test_what_was_measured_alone_says_what_is_not(measured: Measured, modes: set[str], mode: str) -> None:
    # What was measured in vain the cost model decides in other modes, which leaves small ones to stock.
    module = small_products() if measured.vain else small_products(128, 128)
    found = regions_of(module)
    assert found
    _, report = knowing(dict.fromkeys(found, measured), mode).run(module)
    assert bool(report.dispatched) == (mode in modes)


def test_what_is_little_work_is_taken_however_much_longer_its_call_takes() -> None:
    module = small_products()
    lost = Measured(STOCK, {STOCK: 1e-6, "plain": 250e-6})
    _, report = knowing(dict.fromkeys(regions_of(module), lost), EVERYTHING).run(module)
    assert [sequence.calls for sequence in report.sequences] == [3]
    wrong = replace(lost, refused={"plain": "off by 3"})
    assert not knowing(dict.fromkeys(regions_of(module), wrong), EVERYTHING).run(module)[1].dispatched


def test_what_is_too_small_to_gain_is_not_taken_where_its_result_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such regions are measured only where stock may be wrong; what was found of the kernel then holds."""
    module = small_products()
    wrong = Measured(STOCK, {STOCK: 1e-3, "plain": 0.5e-3}, refused={"plain": "off by 3"})
    known = dict.fromkeys(regions_of(module), wrong)
    monkeypatch.setattr(Cutter, "is_stock_within", lambda self, seconds, match: seconds > 0.5e-6)
    monkeypatch.setattr(Cutter, "reads_a_reduction", lambda self, match: True)
    assert not knowing(known, EVERYTHING).run(module)[1].dispatched
    monkeypatch.setattr(Cutter, "reads_a_reduction", lambda self, match: False)
    assert knowing({}, EVERYTHING).run(module)[1].dispatched


def test_the_sentinel_is_no_measurement_of_anything() -> None:
    assert not TAKEN.seconds
    assert Measured("", {}) is not TAKEN
