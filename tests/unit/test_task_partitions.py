"""Task partitions of created loop fusions, and that XLA accepts them."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.ir.shape import Shape, row_major
from hlo_dispatch.ir.task_partitions import BYTES_PER_TASK, loop_backend_config

LARGE = row_major("f32", (64, 64, 1024))  # 64 tasks' worth


@pytest.mark.parametrize(
    ("shape", "threads", "partitions"),
    [
        (LARGE, 1, None),
        (LARGE, 2, ["2"]),
        (LARGE, 64, ["64"]),
        (row_major("f32", (512, 512)), 8, ["4"]),
        (row_major("f32", (512, 255)), 8, None),
        (row_major("bf16", (512, 512)), 8, ["2"]),
        (row_major("f32", (2, 3, 100_000)), 8, ["2", "3", "2"]),
        (row_major("f32", (1, 512, 512)), 2, ["1", "2"]),
        (Shape("f32", (512, 3), (0, 1)), 8, None),
        (Shape("f32", (200_000, 3), (0, 1)), 4, ["3", "2"]),
        (row_major("f32", ()), 8, None),
        (row_major("f32", (0, 512, 512)), 8, None),
    ],
    ids=str,
)
def test_partitions(shape: Shape, threads: int, partitions: list[str] | None) -> None:
    config = loop_backend_config(shape, threads)
    assert (json.loads(config)["outer_dimension_partitions"] if config else None) == partitions


def test_spelled_as_xla_spells_it() -> None:
    assert loop_backend_config(LARGE, 2) == b'{"outer_dimension_partitions":["2"]}'


@given(st.lists(st.integers(1, 600), min_size=1, max_size=4), st.integers(1, 64), st.data())
def test_never_more_parts_than_a_dimension_has_places(dimensions: list[int], threads: int, data) -> None:
    order = tuple(data.draw(st.permutations(range(len(dimensions)))))
    shape = Shape("f32", tuple(dimensions), order)
    config = loop_backend_config(shape, threads)
    if not config:
        assert threads == 1 or shape.bytes < 2 * BYTES_PER_TASK
        return
    partitions = [int(count) for count in json.loads(config)["outer_dimension_partitions"]]
    outer = [shape.dimensions[number] for number in reversed(order)][: len(partitions)]
    assert all(1 <= count <= size for count, size in zip(partitions, outer, strict=True))
    assert math.prod(partitions) >= min(threads, shape.bytes // BYTES_PER_TASK)
