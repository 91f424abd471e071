"""Attribute `slices`: what does not describe slices of the call's operands is refused, in a child process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from family_sequence import gated
from wire_calls import Array, WireCall, tagged, valid_calls
from worker_pool import Worker

pytestmark = pytest.mark.any_processor

COUNT = 3


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as running:
        yield running


def sliced(index: Array | None = None, **changes: Any) -> WireCall:
    """A valid product whose weights are one of three slices, but for these changes of the attribute."""
    call = next(
        call for call in valid_calls() if call.name == "onednn.matmul" and {a.type for a in call.operands} == {"f32"}
    )
    weights = call.operands[1]
    stack = Array(weights.type, [COUNT, *weights.dims])
    operands = [call.operands[0], stack, *call.operands[2:], index or Array("s32", [])]
    elements = 1
    for size in weights.dims:
        elements *= size
    slices: dict[str, Any] = {
        "operands": [1],
        "indexes": [len(call.operands)],
        "counts": [COUNT],
        "strides": [4 * elements],
        "elements": [elements],
    }
    slices = {name: value for name, value in (slices | changes).items() if value is not None}
    return WireCall(call.name, call.attributes | {"slices": tagged(slices)}, operands, call.results, f"{changes}")


def test_slices_are_read(worker: Worker) -> None:
    assert "error" not in worker.run(sliced())
    assert "error" not in worker.run(sliced(Array("u8", [1])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operands": [0]}, "expected"),
        ({"operands": [7]}, "attribute 'slices.operands': expected 0 to"),
        ({"operands": [-1]}, "attribute 'slices.operands': expected 0 to"),
        ({"operands": []}, "attribute 'slices.indexes': expected 0 numbers, got 1"),
        ({"operands": None}, "attribute 'operands' is missing"),
        ({"indexes": [0]}, "attribute 'slices.operands'"),
        ({"indexes": [100]}, "operands with those that are indexes"),
        ({"counts": [0]}, "attribute 'slices.counts': expected 1 to"),
        ({"counts": [COUNT + 1]}, f"expected an array of {COUNT + 1} slices"),
        ({"counts": [1 << 46], "strides": [1 << 46]}, "attribute 'slices.counts'"),
        ({"strides": [0]}, "attribute 'slices.strides': expected 1 to"),
        ({"strides": [1]}, f"expected an array of {COUNT} slices"),
        ({"strides": [1 << 40]}, f"expected an array of {COUNT} slices"),
        ({"elements": [1]}, "weights: expected"),
        ({"elements": [1 << 40]}, f"expected an array of {COUNT} slices"),
        ({"counts": [COUNT, COUNT]}, "attribute 'slices.counts': expected 1 numbers, got 2"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(worker: Worker, changes: dict[str, Any], message: str) -> None:
    outcome = worker.run(sliced(**changes))
    assert message in outcome["error"], outcome


@pytest.mark.parametrize("index", [Array("f32", []), Array("s32", [2]), Array("pred", [])], ids=str)
def test_an_index_is_one_integer(worker: Worker, index: Array) -> None:
    assert "index of a slice: expected" in worker.run(sliced(index))["error"]


def test_members_of_groups_have_none(worker: Worker) -> None:
    call = gated([0, 128, 192])
    member = {**call.attributes["member_0"][1], "slices": sliced().attributes["slices"]}
    outcome = worker.run(
        WireCall(call.name, call.attributes | {"member_0": ["dictionary", member]}, call.operands, call.results)
    )
    assert "attribute 'slices': expected in the sequence" in outcome["error"], outcome
