"""Each case of `refusal_sentences` is refused in its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.attention.finder import AttentionFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.routines.routine import RoutineFinder
from matching import flattened, normalized, parsed, table
from refusal_attentions import ATTENTIONS
from refusal_modules import Case
from refusal_sentences import ANCHORS, ENTRIES, ROUTINES, EntryCase

SHIPPED = tuple(table().anchors.values())


def check(found: Anchor | Match | Refusal | None, code: str, sentence: str) -> None:
    assert isinstance(found, Refusal)
    assert (found.code, found.sentence) == (code, sentence)


def name_of(case: object) -> str:
    assert isinstance(case, Case | EntryCase)
    return f"{case.op_kind}-{case.code}-{case.sentence}"


@pytest.mark.parametrize("case", ANCHORS, ids=name_of)
def test_an_anchor_is_refused(case: Case) -> None:
    op_kind, found = normalized(parsed(case.text))
    assert op_kind == case.op_kind
    check(found, case.code, case.sentence)


@pytest.mark.parametrize("case", ENTRIES, ids=name_of)
def test_an_entry_refuses_an_anchor(case: EntryCase) -> None:
    entries = tuple(
        replace(entry, **case.changes) for entry in SHIPPED if case.changes or entry.op_kind != case.op_kind
    )
    op_kind, found = normalized(parsed(case.text), entries)
    assert op_kind == case.op_kind
    check(found, case.code, case.sentence)
    assert isinstance(normalized(parsed(case.text))[1], Anchor)


@pytest.mark.parametrize("case", ATTENTIONS, ids=name_of)
def test_an_attention_is_refused(case: Case) -> None:
    check(dict(found_by_name(AttentionFinder(table()), case.text))["op"], case.code, case.sentence)


@pytest.mark.parametrize("case", ROUTINES, ids=name_of)
def test_a_routine_is_refused(case: Case) -> None:
    check(dict(found_by_name(RoutineFinder(table()), case.text))["op"], case.code, case.sentence)


def found_by_name(finder: AttentionFinder | RoutineFinder, text: str) -> Iterator[tuple[str, Match | Refusal]]:
    for instruction, found in finder.find(flattened(text)):
        yield instruction.name, found
