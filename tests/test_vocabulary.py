"""Lint of identifiers: names that were given up for the field's own words do not come back.

Only names that say nothing to an engineer of the field are listed; words of plain English are not.
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GIVEN_UP = {
    "binding-time analysis": "early_values mark_early is_early _early_elements given_everywhere",
    "partition, frontier, split": "Colouring colour colouring PreparationPart in_parts transplant Transplanted",
    "prepacking": "PackedForm packed_form PackingPlanner PackingLease PackingNeed PackedPanels may_be_packed",
    "buffer coalescing": "held_together lying_together",
    "slices of stacked weights": "Picked picked_values",
    "stride propagation": "thin _Thinner Thinned thinned thinned_shape",
    "call groups, glue ops": "joins_calls calls_apart is_link may_link MAY_BE_LINKS Joints joints plan_between",
    "in-place sum post-op": "Accumulation accumulations",
    "write-after-read hazards": "EarlierThan protect_updates protect_results",
    "ownership of instructions": "Claims obstruct",
    "op kind, normalizer": "READINGS READERS readings_of usual_reading reading_of by_reading read_anchor",
    "peeling": "look_through looked_past furthest LOOKED_THROUGH Unpadded",
    "cost model": "rule_of _OfAnchors FOR_ONE_ROW in_order_of_speed",
    "kernel support query": "AskKernels _CountingAsk Inquiries",
    "match without epilogue": "Undivided",
    "measurement requests": "recall_in LearntRegion Cutter RoutinePart",
    "plan strategies": "GUESSED REGARDLESS ALL_IN_KERNELS BY_FAR",
    "failed attempts, timed out, stuck threads": "is_hopeless MOST_VAIN is_haunted endless Endless _note_in_vain",
    "finalists, time estimate": "leaders Pace HalvesExecutable in_double",
    "context ops, shares a fusion": "surrounded is_entangled",
    "decision dependencies": "Grounds Witness has_learnt",
    "placeholder executable": "StandIn standing_in stand_in_name is_stand_in Elsewhere NOWHERE",
    "plugin entry point": "DOOR_VARIABLE _door",
    "module rewriter": "Rebuilder CannotRebuild put_back",
    "program tuner": "Deliberation _deliberated",
    "scoped environment variable, abandoned threads, signal handler guard": (
        "LentVariable ThreadsLost kLost LeaveAtOnce SignalActions LeaveSignalsToOthers"
    ),
    "native engine": "InnerEngine inner_problem",
    "weight-only quantized matmul": "is_narrow_product NarrowProduct ColumnsTogether RowsTogether",
    "ISA cap": "MostUsed kEverything",
}
"""The field's word → identifiers that stood for it."""
INSTEAD = {name: word for word, names in GIVEN_UP.items() for name in names.split()}
TRACKED = subprocess.run(
    ["git", "ls-files", "*.py", "*.pyi", "*.cc", "*.h"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()


def identifiers(path: Path) -> set[str]:
    """Every name that a file of Python or C++ uses."""
    text = path.read_text()
    if path.suffix in (".py", ".pyi"):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return {token.string for token in tokens if token.type == tokenize.NAME}
    without_strings = re.sub(r'"(\\.|[^"\\\n])*"', '""', re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL))
    return set(re.findall(r"[A-Za-z_]\w*", without_strings))


def test_the_files_are_found() -> None:
    assert len(TRACKED) > 400 or not (ROOT / ".git").exists()


@pytest.mark.parametrize("folder", ["dispatch", "bench", "kernels", "tests"])
def test_no_given_up_name_comes_back(folder: str) -> None:
    found = {
        f"{name} in {file}: say {INSTEAD[name]}"
        for file in TRACKED
        if file.startswith(f"{folder}/") and (ROOT / file).is_file() and not (ROOT / file).is_symlink()
        for name in identifiers(ROOT / file) & INSTEAD.keys()
    }
    assert not found


def test_a_given_up_name_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text("found = thinned_shape(x)  # not a StandIn\n")
    source = tmp_path / "example.cc"
    source.write_text('// SignalActions\nconst char* text = "InnerEngine"; LentVariable variable;\n')
    assert identifiers(path) & INSTEAD.keys() == {"thinned_shape"}
    assert identifiers(source) & INSTEAD.keys() == {"LentVariable"}
