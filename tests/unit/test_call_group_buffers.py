"""Where values lie that exist for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.passes.call_groups.buffer_assignment import ALIGNMENT, LiveRange, assign_buffers


@st.composite
def live_ranges(draw: st.DrawFn) -> list[LiveRange]:
    made = []
    for _ in range(draw(st.integers(0, 20))):
        first = draw(st.integers(0, 12))
        made.append(LiveRange(draw(st.integers(0, 1000)), first, first + draw(st.integers(0, 5))))
    return made


@given(live_ranges())
def test_what_exists_at_the_same_time_lies_apart(given_lives: list[LiveRange]) -> None:
    arena = assign_buffers(given_lives)
    assert len(arena.offsets) == len(given_lives)
    for number, (life, offset) in enumerate(zip(given_lives, arena.offsets, strict=True)):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= offset + life.bytes <= arena.bytes
        for other, place in zip(given_lives[:number], arena.offsets[:number], strict=True):
            if life.first <= other.last and other.first <= life.last:
                assert offset + life.bytes <= place or place + other.bytes <= offset


@given(live_ranges())
def test_no_more_memory_than_all_of_them_need(given_lives: list[LiveRange]) -> None:
    rounded = [-(-life.bytes // ALIGNMENT) * ALIGNMENT for life in given_lives]
    assert assign_buffers(given_lives).bytes <= sum(rounded)


def test_a_chain_needs_two_places() -> None:
    chain = [LiveRange(640, step, step + 1) for step in range(30)]
    assert assign_buffers(chain).bytes == 2 * 640


def test_what_is_written_over_keeps_its_place() -> None:
    x, gate = LiveRange(640, 0, 2), LiveRange(64, 1, 2)
    gated, other, last = LiveRange(640, 2, 4, reuses=0), LiveRange(640, 3, 5), LiveRange(640, 4, 5, reuses=2)
    offsets = assign_buffers([x, gate, gated, other, last]).offsets
    assert offsets[0] == offsets[2] == offsets[4]
    for inner, size in ((offsets[1], 64), (offsets[3], 640)):
        assert inner + size <= offsets[0] or offsets[0] + 640 <= inner


def test_nothing_needs_nothing() -> None:
    assert assign_buffers([]) == type(assign_buffers([]))((), 0)
