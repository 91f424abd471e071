"""Memory in large pages: only what is whole, with the contents it had, and nothing where nobody is to have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.process import large_pages

SIZE = 64
PIECES = st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 300)), max_size=8)


@given(PIECES)
def test_whole_pages_and_nothing_but_what_was_given(pieces: list[tuple[int, int]]) -> None:
    given_bytes = {byte for begin, count in pieces for byte in range(begin, begin + count)}
    # What lies between two of them and is no larger than malloc's own words may go with them.
    for begin, end in large_pages._whole_pages([(1000 * begin, 1000 * count) for begin, count in pieces], 1000 * SIZE):
        assert begin % (1000 * SIZE) == end % (1000 * SIZE) == 0
        assert begin < end
        gaps = [byte for byte in range(begin // 1000, end // 1000) if byte not in given_bytes]
        assert all(any(near in given_bytes for near in range(gap - 4, gap + 5)) for gap in gaps)


def test_neighbours_are_one_piece() -> None:
    assert large_pages._whole_pages([(100, 28), (128, 70)], SIZE) == [(128, 192)]
    assert large_pages._whole_pages([(0, 32), (32, 32)], SIZE) == [(0, 64)]
    assert large_pages._whole_pages([(1, 63), (10_000, 60)], SIZE) == []
    assert large_pages._whole_pages([], SIZE) == []


def test_contents_stay() -> None:
    numbers = np.random.default_rng().integers(0, 1 << 62, 2_000_003)
    before = numbers.copy()
    moved = large_pages.move_to_large_pages([(numbers.ctypes.data, numbers.nbytes)])
    assert 0 <= moved <= numbers.nbytes
    np.testing.assert_array_equal(numbers, before)
    # Memory that is gone, or nobody's, is refused by the system and harms nobody.
    assert large_pages.move_to_large_pages([(1 << 21, 1 << 22)]) == 0


@pytest.mark.parametrize(
    ("enabled", "size", "found"),
    [("always [madvise] never\n", "2097152\n", 2097152), ("always madvise [never]\n", "2097152\n", 0),
     ("always [madvise] never\n", "many", 0), (None, "2097152\n", 0), ("[always] madvise never\n", None, 0)],
)  # fmt: skip
def test_what_the_machine_says(tmp_path: Path, enabled: str | None, size: str | None, found: int) -> None:
    for name, text in (("enabled", enabled), ("hpage_pmd_size", size)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert large_pages._page_bytes(tmp_path) == found
