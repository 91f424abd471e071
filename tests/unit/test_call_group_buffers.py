"""Buffer assignment and live ranges of a call group's intermediate values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.analysis.buffer_assignment import ALIGNMENT, assign_buffers
from hlo_dispatch.analysis.live_range import LiveRange


@st.composite
def live_ranges(draw: st.DrawFn) -> list[LiveRange]:
    made = []
    for _ in range(draw(st.integers(0, 20))):
        first = draw(st.integers(0, 12))
        made.append(LiveRange(draw(st.integers(0, 1000)), first, first + draw(st.integers(0, 5))))
    return made


@given(live_ranges())
def test_overlapping_live_ranges_have_disjoint_buffers(live_ranges: list[LiveRange]) -> None:
    assignment = assign_buffers(live_ranges)
    assert len(assignment.offsets) == len(live_ranges)
    for number, (live_range, offset) in enumerate(zip(live_ranges, assignment.offsets, strict=True)):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= offset + live_range.bytes <= assignment.bytes
        for other, other_offset in zip(live_ranges[:number], assignment.offsets[:number], strict=True):
            if live_range.first <= other.last and other.first <= live_range.last:
                assert offset + live_range.bytes <= other_offset or other_offset + other.bytes <= offset


@given(live_ranges())
def test_the_largest_first_each_at_the_lowest_free_offset(live_ranges: list[LiveRange]) -> None:
    offsets: dict[int, int] = {}
    for number in sorted(range(len(live_ranges)), key=lambda number: (-live_ranges[number].bytes, number)):
        live_range, lowest = live_ranges[number], 0
        for begin, other in sorted((offsets[n], n) for n in offsets if live_ranges[n].overlaps(live_range)):
            if lowest + live_range.bytes <= begin:
                break
            lowest = max(lowest, begin + -(-live_ranges[other].bytes // ALIGNMENT) * ALIGNMENT)
        offsets[number] = lowest
    assert assign_buffers(live_ranges).offsets == tuple(offsets[number] for number in range(len(live_ranges)))


@given(live_ranges())
def test_no_more_memory_than_all_of_them_need(live_ranges: list[LiveRange]) -> None:
    rounded = [-(-live_range.bytes // ALIGNMENT) * ALIGNMENT for live_range in live_ranges]
    assert assign_buffers(live_ranges).bytes <= sum(rounded)


def test_a_chain_needs_two_places() -> None:
    chain = [LiveRange(640, step, step + 1) for step in range(30)]
    assert assign_buffers(chain).bytes == 2 * 640


def test_what_is_written_over_keeps_its_place() -> None:
    x, gate = LiveRange(640, 0, 2), LiveRange(64, 1, 2)
    gated, other, last = LiveRange(640, 2, 4), LiveRange(640, 3, 5), LiveRange(640, 4, 5)
    offsets = assign_buffers([x, gate, gated, other, last], {2: 0, 4: 2}).offsets
    assert offsets[0] == offsets[2] == offsets[4]
    for inner, size in ((offsets[1], 64), (offsets[3], 640)):
        assert inner + size <= offsets[0] or offsets[0] + 640 <= inner


def test_nothing_needs_nothing() -> None:
    assert assign_buffers([]) == type(assign_buffers([]))((), 0)
