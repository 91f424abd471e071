"""dispatch/compile-on-a-run-on-b.md quotes what a user sees: every sentence is one that the code says."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

import pages
from pages import ROOT

PAGE = ROOT / "dispatch" / "compile-on-a-run-on-b.md"
EXAMPLES = {
    "jaxlib 0.12.0.1, here 0.10.2": "{name} {needed[name]}, here {there[name]}",
    "oneDNN 3.13.2 over sycl, here 3.2.0 over openmp": "{name} {identity}, here {there['libraries'][name]}",
}
"""Sentences of nothing but values, by how they are made."""


def quoted() -> list[str]:
    """The first column of the tables of words; blanks at its ends belong to it."""
    tables = re.findall(r"^\| words \|.*?\n\n", pages.prose(PAGE), re.MULTILINE | re.DOTALL)
    return [words for table in tables for words in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)]


@lru_cache(maxsize=1)
def said() -> str:
    """All sources as one text in which no sentence is broken into lines."""
    folders = ((ROOT / "dispatch" / "hlo_dispatch" / "freezing", "*.py"), (ROOT / "kernels", "*.cc"))
    files = [path for folder, pattern in folders for path in sorted(folder.rglob(pattern))]
    joined = " ".join(path.read_text() for path in files)
    return re.sub(r'"\s*f?"', "", joined)


def test_there_are_words() -> None:
    assert len(quoted()) >= 14


@pytest.mark.parametrize("words", quoted())
def test_the_words_are_the_codes(words: str) -> None:
    for part in EXAMPLES.get(words, words).split("…"):
        assert part in said(), part
