"""Write-after-read hazards: the copies and control dependencies of a rewritten computation, and no others.

The drafts are written in the tests: some instructions count as created, the others as XLA's.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hlo_dispatch.analysis.in_place_updates import written_operands
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported, resolve_hazards
from matching import parsed

F = "f32[4]{0}"
STATE = f"(s32[], {F}, {F})"
# A while body's state is parameter 0; its parts 0, 1 and 2 become the result's.
STATE_PAIRS = [((0, 0), 0), ((0, 1), 1), ((0, 2), 2)]


class Drafted:
    """A draft of a module's entry, and what `resolve_hazards` did to it, by name."""

    def __init__(self, body: str, created: Iterable[str], updates: Iterable[str] = (), called: str = "") -> None:
        module = parsed(f"{called} ENTRY main {{ {body} }}")
        self.draft = Editor(module, module.entry)
        self.draft.created |= {i for i, proto in self.draft.instructions.items() if proto.name in created}
        self._own = set(self.draft.instructions)
        self._updates = {
            i: written_operands(module, proto) for i, proto in self.draft.instructions.items() if proto.name in updates
        }

    def resolve_hazards(self, pairs: Iterable = ()) -> Drafted:
        resolve_hazards(self.draft, pairs, self._updates)
        return self

    @property
    def described(self) -> dict[str, str]:
        """Name → what of an instruction is new: its operands and what it waits for, copies in full."""
        name_of = {identifier: proto.name for identifier, proto in self.draft.instructions.items()}
        found = {}
        for proto in self.draft.instructions.values():
            operands = ", ".join(name_of[operand] for operand in proto.operand_ids)
            waits = ", ".join(sorted(name_of[earlier] for earlier in proto.control_predecessor_ids))
            found[proto.name] = f"{proto.opcode}({operands})" + (f" after {waits}" if waits else "")
        return found

    @property
    def copies(self) -> list[str]:
        return [proto.name for i, proto in self.draft.instructions.items() if i not in self._own]


# --- results that share a parameter's buffer ---------------------------------------------------------------


def body(result: str, kernel: str = f'{F} custom-call(a), custom_call_target="kernel"') -> str:
    """A while body: state (i, a, b); %kernel is ours and reads %a."""
    return f"""
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = {F} get-tuple-element(state), index=1
  b = {F} get-tuple-element(state), index=2
  kernel = {kernel}
  new = {F} {result}
  ROOT next = {STATE} tuple(i, new, kernel)"""


def test_a_buffer_read_late_gets_its_new_value_at_the_end() -> None:
    """%new may be written over %a at once; %kernel still wants to read %a."""
    drafted = Drafted(body("negate(a)"), created=["kernel"]).resolve_hazards(STATE_PAIRS)
    assert drafted.copies == ["hazard_copy"]
    assert drafted.described["hazard_copy"] == "copy(new) after kernel"
    assert drafted.described["next"] == "tuple(i, hazard_copy, kernel)"
    assert drafted.described["kernel"] == "custom-call(a)"


def test_nothing_is_done_where_the_reader_comes_first_anyway() -> None:
    drafted = Drafted(body("negate(kernel)"), created=["kernel"])
    before = drafted.described
    assert drafted.resolve_hazards(STATE_PAIRS).described == before


def test_nothing_is_done_for_a_value_that_stays_where_it_is() -> None:
    text = body("negate(b)").replace("tuple(i, new, kernel)", "tuple(i, a, kernel)")
    drafted = Drafted(text, created=["kernel"])
    before = drafted.described
    assert drafted.resolve_hazards([((0, 1), 1)]).described == before


def test_xlas_own_instructions_are_trusted() -> None:
    drafted = Drafted(body("negate(a)"), created=[])
    before = drafted.described
    assert drafted.resolve_hazards(STATE_PAIRS).described == before


def test_ours_does_not_read_what_it_writes_over() -> None:
    """%kernel's own result takes the place of %a: a primitive does not work in place."""
    text = body("negate(b)").replace("tuple(i, new, kernel)", "tuple(i, kernel, new)")
    drafted = Drafted(text, created=["kernel"]).resolve_hazards([((0, 1), 1)])
    assert drafted.described["hazard_copy"] == "copy(kernel)"
    assert drafted.described["next"] == "tuple(i, hazard_copy, new)"


def test_xlas_readers_are_protected_from_ours() -> None:
    """%kernel does not read %a but is written in its place, which %new has yet to read."""
    text = body("negate(a)", f'{F} custom-call(b), custom_call_target="kernel"').replace(
        "tuple(i, new, kernel)", "tuple(i, kernel, new)"
    )
    drafted = Drafted(text, created=["kernel"]).resolve_hazards([((0, 1), 1)])
    assert drafted.described["hazard_copy"] == "copy(kernel) after new"


def test_a_buffer_is_known_under_its_other_names() -> None:
    """%kernel reads a bitcast of %a; the new value is a bitcast, too."""
    text = (
        body("negate(a)", f'{F} custom-call(square), custom_call_target="kernel"')
        .replace("kernel = ", "square = f32[2,2]{1,0} bitcast(a)\n  kernel = ")
        .replace("new = f32[4]{0} negate(a)", "minus = f32[2,2]{1,0} negate(square)\n  new = f32[4]{0} bitcast(minus)")
    )
    drafted = Drafted(text, created=["kernel"]).resolve_hazards(STATE_PAIRS)
    assert drafted.described["hazard_copy"] == "copy(new) after kernel"


def updating_body(fused: str, config: str = "") -> str:
    """A module whose entry is a while body: a fusion of the test's updates %a, a part of the state."""
    return f"""
fused {{ p = {F} parameter(0)
  piece = f32[1]{{0}} parameter(1)
  at = s32[] parameter(2)
  {fused} }}
ENTRY main {{ state = (s32[], {F}, f32[1]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = {F} get-tuple-element(state), index=1
  b = f32[1]{{0}} get-tuple-element(state), index=2
  new = {F} fusion(a, b, i), kind=kLoop, calls=fused{config}
  ROOT next = (s32[], {F}, f32[1]) tuple(i, new, b) }}
"""


@pytest.mark.parametrize(
    ("fused", "config", "copies"),
    [
        (f"ROOT u = {F} dynamic-update-slice(p, piece, at)", "", []),
        (  # one task writes what another reads
            f"ROOT u = {F} dynamic-update-slice(p, piece, at)",
            ', backend_config={"outer_dimension_partitions":["2"]}',
            ["hazard_copy"],
        ),
        (  # the elements are read, too
            f"s = f32[1]{{0}} dynamic-slice(p, at), dynamic_slice_sizes={{1}}\n  m = f32[1]{{0}} multiply(s, piece)\n"
            f"ROOT u = {F} dynamic-update-slice(p, m, at)",
            "",
            ["hazard_copy"],
        ),
        (f"n = {F} negate(p)\n  ROOT u = {F} dynamic-update-slice(n, piece, at)", "", ["hazard_copy"]),
    ],
)
def test_an_update_of_ours_happens_where_the_parameter_lies(fused: str, config: str, copies: list[str]) -> None:
    module = parsed(updating_body(fused, config))
    draft = Editor(module, module.entry)
    (new,) = [proto for proto in draft.instructions.values() if proto.name == "new"]
    draft.created.add(new.id)
    before = set(draft.instructions)
    resolve_hazards(draft, STATE_PAIRS, {new.id: written_operands(module, new)})
    assert [proto.name for i, proto in draft.instructions.items() if i not in before] == copies


def test_two_parts_that_change_places() -> None:
    """XLA's own copies stand between them; nothing of ours reads either."""
    text = f"""
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = {F} get-tuple-element(state), index=1
  b = {F} get-tuple-element(state), index=2
  first = {F} copy(a)
  second = {F} copy(b)
  ROOT next = {STATE} tuple(i, second, first)"""
    drafted = Drafted(text, created=[])
    before = drafted.described
    assert drafted.resolve_hazards(STATE_PAIRS).described == before


# --- donated inputs ----------------------------------------------------------------------------------------

DONATED = f"""
  x = {F} parameter(0)
  kernel = {F} custom-call(x), custom_call_target="kernel"
  new = {F} negate(x)
"""


def test_a_donated_input_whose_output_is_the_whole_result() -> None:
    text = DONATED.replace("new =", "ROOT new =").replace("negate(x)", "add(x, x)")
    drafted = Drafted(text, created=["kernel"]).resolve_hazards([((0,), None)])
    assert drafted.described["hazard_copy"] == "copy(new) after kernel"
    assert drafted.draft.root.name == "hazard_copy"


def test_a_donated_input_whose_output_is_a_part_of_the_result() -> None:
    drafted = Drafted(DONATED + f"ROOT t = ({F}, {F}) tuple(kernel, new)", created=["kernel"]).resolve_hazards(
        [((0,), 1)]
    )
    assert drafted.described["hazard_copy"] == "copy(new) after kernel"
    assert drafted.described["t"] == "tuple(kernel, hazard_copy)"


def test_a_donated_input_that_is_not_read_late() -> None:
    drafted = Drafted(
        DONATED.replace("negate(x)", "negate(kernel)") + f"ROOT t = ({F}, {F}) tuple(kernel, new)", created=["kernel"]
    )
    before = drafted.described
    assert drafted.resolve_hazards([((0,), 1)]).described == before


def test_parts_of_a_result_that_is_no_tuple() -> None:
    """A while hands its state on as a whole: there is no place for a copy of one part."""
    text = f"""
  state = {STATE} parameter(0)
  a = {F} get-tuple-element(state), index=1
  kernel = {F} custom-call(a), custom_call_target="kernel"
  ROOT next = {STATE} custom-call(kernel), custom_call_target="loop"
"""
    with pytest.raises(
        RewriteUnsupported, match=r"^%next is no tuple: the buffers of its elements cannot be followed$"
    ):
        Drafted(text, created=["kernel"]).resolve_hazards(STATE_PAIRS)
    # What nobody looks into needs no place.
    Drafted(text, created=["kernel"]).resolve_hazards([((0, 2), 2)])


# --- in-place updates --------------------------------------------------------------------------------------


def updated(kernel: str, update: str = "dynamic-update-slice(buffer, piece, at)") -> str:
    return f"""
  buffer = {F} parameter(0)
  piece = f32[1]{{0}} parameter(1)
  at = s32[] parameter(2)
  update = {F} {update}
  kernel = {F} custom-call({kernel}), custom_call_target="kernel"
  ROOT t = ({F}, {F}) tuple(update, kernel)"""


def test_an_update_waits_for_a_reader_of_the_old_value() -> None:
    drafted = Drafted(updated("buffer"), created=["kernel"], updates=["update"]).resolve_hazards()
    assert drafted.copies == []
    assert drafted.described["update"] == "dynamic-update-slice(buffer, piece, at) after kernel"


def test_a_reader_of_both_values_reads_a_copy_of_the_old_one() -> None:
    drafted = Drafted(updated("buffer, update"), created=["kernel"], updates=["update"]).resolve_hazards()
    assert drafted.described["hazard_copy"] == "copy(buffer)"
    assert drafted.described["update"] == "dynamic-update-slice(buffer, piece, at) after hazard_copy"
    assert drafted.described["kernel"] == "custom-call(hazard_copy, update)"


def test_an_update_does_not_wait_for_readers_of_what_it_only_reads() -> None:
    drafted = Drafted(updated("piece"), created=["kernel"], updates=["update"]).resolve_hazards()
    assert drafted.copies == []
    assert drafted.described["update"] == "dynamic-update-slice(buffer, piece, at)"


def test_what_an_update_only_reads_needs_no_copy() -> None:
    drafted = Drafted(updated("piece, update"), created=["kernel"], updates=["update"])
    assert drafted.resolve_hazards().copies == []


def test_xlas_own_readers_are_its_own_business() -> None:
    drafted = Drafted(updated("buffer"), created=[], updates=["update"])
    before = drafted.described
    assert drafted.resolve_hazards().described == before


def test_a_value_of_ours_is_protected_for_xlas_readers() -> None:
    """%buffer's value is now made by us: XLA has ordered nothing about it."""
    made = f'source = {F} parameter(0)\n  buffer = {F} custom-call(source), custom_call_target="ours"'
    text = updated("buffer").replace(f"buffer = {F} parameter(0)", made)
    drafted = Drafted(text, created=["buffer"], updates=["update"]).resolve_hazards()
    assert drafted.described["update"] == "dynamic-update-slice(buffer, piece, at) after kernel"


def test_a_while_writes_over_every_part_of_what_it_is_given() -> None:
    text = f"""
  x = {F} parameter(0)
  y = {F} parameter(1)
  i = s32[] constant(0)
  kernel = {F} custom-call(y), custom_call_target="kernel"
  state = {STATE} tuple(i, x, y)
  while = {STATE} custom-call(state), custom_call_target="stands for a while"
  ROOT t = ({STATE}, {F}) tuple(while, kernel)"""
    drafted = Drafted(text, created=["kernel"], updates=["while"]).resolve_hazards()
    assert drafted.described["while"] == "custom-call(state) after kernel"


LOOP = f"""
body {{
  carried = {STATE} parameter(0)
  i = s32[] get-tuple-element(carried), index=0
  same = {F} get-tuple-element(carried), index=1
  changed = {F} get-tuple-element(carried), index=2
  next = {F} negate(changed)
  ROOT carried_on = {STATE} tuple(i, same, next)
}}
condition {{
  carried = {STATE} parameter(0)
  ROOT goes_on = pred[] constant(false)
}}
"""


def around_a_loop(*, updates: str, reads: str) -> Drafted:
    """A loop that changes the last part of its state; behind it, an update of a part; %kernel is ours."""
    kernel = f'kernel = {F} custom-call({reads}), custom_call_target="kernel"'
    text = f"""
  x = {F} parameter(0)
  y = {F} parameter(1)
  piece = f32[1]{{0}} parameter(2)
  at = s32[] parameter(3)
  kept = {F} negate(x)
  begun = {F} negate(y)
  state = {STATE} tuple(at, kept, begun)
  while = {STATE} while(state), condition=condition, body=body
  same_part = {F} get-tuple-element(while), index=1
  changed_part = {F} get-tuple-element(while), index=2
  {kernel}
  update = {F} dynamic-update-slice({updates}, piece, at)
  ROOT t = ({F}, {F}) tuple(update, kernel)"""
    return Drafted(text, created=["kernel"], updates=["while", "update"], called=LOOP).resolve_hazards()


def test_a_loop_does_not_write_over_what_its_body_returns_unchanged() -> None:
    drafted = around_a_loop(updates="x", reads="kept, changed_part")
    assert drafted.copies == []
    assert drafted.described["while"] == "while(state)"


def test_a_loop_waits_for_readers_of_what_its_body_changes() -> None:
    assert around_a_loop(updates="x", reads="begun").described["while"] == "while(state) after kernel"


def test_an_update_of_what_a_loop_returns_unchanged_waits_for_readers_in_front_of_the_loop() -> None:
    drafted = around_a_loop(updates="same_part", reads="kept")
    assert drafted.described["while"] == "while(state)"
    assert drafted.described["update"] == "dynamic-update-slice(same_part, piece, at) after kernel"


def test_a_loop_that_takes_the_result_of_a_loop() -> None:
    """It may overwrite what the first one returns unchanged."""
    changing = LOOP.replace("body {", "changing {").replace("condition {", "its_condition {")
    changing = changing.replace("tuple(i, same, next)", "tuple(i, next, changed)")
    text = f"""
  x = {F} parameter(0)
  y = {F} parameter(1)
  at = s32[] parameter(2)
  kept = {F} negate(x)
  begun = {F} negate(y)
  state = {STATE} tuple(at, kept, begun)
  first = {STATE} while(state), condition=condition, body=body
  second = {STATE} while(first), condition=its_condition, body=changing
  part = {F} get-tuple-element(second), index=1
  kernel = {F} custom-call(kept), custom_call_target="kernel"
  ROOT t = ({F}, {F}) tuple(part, kernel)"""
    drafted = Drafted(text, created=["kernel"], updates=["first", "second"], called=LOOP + changing).resolve_hazards()
    assert drafted.described["first"] == "while(state) after kernel"


def test_a_reader_under_another_name_is_found() -> None:
    text = updated("flat").replace("kernel = ", "flat = f32[2,2]{1,0} bitcast(buffer)\n  kernel = ")
    drafted = Drafted(text, created=["kernel"], updates=["update"]).resolve_hazards()
    assert drafted.described["update"].endswith("after kernel")


def test_a_reader_of_both_values_under_another_name_reads_a_copy() -> None:
    text = updated("flat, update").replace("kernel = ", "flat = f32[2,2]{1,0} bitcast(buffer)\n  kernel = ")
    drafted = Drafted(text, created=["kernel"], updates=["update"]).resolve_hazards()
    assert drafted.described["hazard_copy"] == "copy(flat)"
    assert drafted.described["update"] == "dynamic-update-slice(buffer, piece, at) after hazard_copy"
    assert drafted.described["kernel"] == "custom-call(hazard_copy, update)"


def test_only_the_last_of_xlas_readers_may_write_over_a_value() -> None:
    """%first and %second both update %buffer: XLA, which has ordered them, has %first work on a copy."""
    text = updated("buffer").replace(
        "update =", f"first = {F} dynamic-update-slice(buffer, piece, at)\n  seen = {F} negate(first)\n  update ="
    )
    drafted = Drafted(text, created=["kernel"], updates=["first", "update"]).resolve_hazards()
    assert drafted.described["first"] == "dynamic-update-slice(buffer, piece, at)"
    assert drafted.described["update"] == "dynamic-update-slice(buffer, piece, at) after first, kernel"
