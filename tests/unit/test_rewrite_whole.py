"""Unchanged parts of a module: modules without matches, instructions without replaced operands."""

from __future__ import annotations

import pytest
from running import rewritten, rewritten_and_run

import hlo_dispatch
from hlo_dispatch.ir.module import Module
from matching import parsed, serialized
from processor import skip_without

M = "f32[64,64]{1,0}"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
PLAIN = f"""
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  ROOT dot = {M} dot(x, w), {DOT} }}
"""
NO_ANCHOR = f"ENTRY main {{ x = {M} parameter(0)\n ROOT tanh = {M} tanh(x) }}"


@pytest.mark.parametrize(("text", "policy"), [(NO_ANCHOR, "always"), (PLAIN, "never"), (PLAIN, "heuristic")])
def test_nothing_to_dispatch_is_none(text: str, policy: str) -> None:
    original = serialized(text)
    result = hlo_dispatch.rewrite(original, policy=policy)
    assert result.proto is None
    assert result.original == original
    assert result.report.dispatched == ()
    assert result.report.instructions == len(parsed(text).entry.instructions)
    assert result.text.startswith("HloModule written")


# --- bytes -------------------------------------------------------------------------------------------------

# Only %fusion loses a member. The others have fields the schema does not know.
MIXED = f"""
turn {{ t.1 = (s32[], {M}) parameter(0)
  i.1 = s32[] get-tuple-element(t.1), index=0
  one = s32[] constant(1)
  more = s32[] add(i.1, one)
  v = {M} get-tuple-element(t.1), index=1
  u = {M} negate(v)
  ROOT n = (s32[], {M}) tuple(more, u) }}
go_on {{ t.2 = (s32[], {M}) parameter(0)
  i.2 = s32[] get-tuple-element(t.2), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i.2, three), direction=LT }}
less_than {{ l = f32[] parameter(0)
  r.2 = f32[] parameter(1)
  ROOT lt = pred[] compare(l, r.2), direction=LT }}
touched {{ p = {M} parameter(0)
  r.1 = {M} parameter(1)
  add = {M} add(p, r.1)
  ROOT erf = {M} erf(add) }}
untouched {{ p.3 = {M} parameter(0)
  ROOT exponential-minus-one = {M} exponential-minus-one(p.3) }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  i = s32[] parameter(2)
  y = {M} parameter(3)
  sorted = {M} sort(y), dimensions={{1}}, is_stable=true, to_apply=less_than
  other = {M} fusion(sorted), kind=kLoop, calls=untouched, metadata={{op_name="expm1" source_file="a.py"}}
  dot = {M} dot(x, w), {DOT}
  fusion = {M} fusion(dot, x), kind=kLoop, calls=touched
  state = (s32[], {M}) tuple(i, fusion)
  loop = (s32[], {M}) while(state), condition=go_on, body=turn, backend_config={{"known_trip_count":{{"n":"3"}}}}
  result = {M} get-tuple-element(loop), index=1
  ROOT t = ({M}, {M}) tuple(other, result) }}
"""


def test_what_is_not_touched_keeps_its_bytes() -> None:
    before, after = parsed(MIXED), rewritten_and_run(MIXED)
    kept = {proto.name: proto.SerializeToString(deterministic=True) for proto in before.entry.instructions}
    found = {proto.name: proto.SerializeToString(deterministic=True) for proto in after.entry.instructions}
    # %state has a new operand in place of %fusion, and that is all.
    gone = {"dot", "fusion"}
    assert set(kept) - set(found) == gone
    assert {name for name in set(kept) & set(found) if kept[name] != found[name]} == {"state"}


def test_computations_that_are_not_touched_keep_their_bytes() -> None:
    def computations(module: Module) -> dict[str, bytes]:
        return {proto.name: proto.SerializeToString(deterministic=True) for proto in module.proto.computations}

    before, after = computations(parsed(MIXED)), computations(rewritten(MIXED))
    assert set(before) - set(after) == {"touched"}
    shared = set(before) & set(after)
    assert {name for name in shared if before[name] != after[name]} == {"main"}
    # Callees stand before their callers, in XLA's own order.
    assert [name for name in after if name in shared] == [name for name in before if name in shared]


def test_the_rest_of_the_module_keeps_its_bytes() -> None:
    def rest(module: Module) -> bytes:
        del module.proto.computations[:]
        return module.proto.SerializeToString(deterministic=True)

    assert rest(parsed(MIXED)) == rest(rewritten(MIXED))


def test_new_names_and_ids_are_nobodys() -> None:
    module = rewritten(MIXED)
    names = [proto.name for proto in module.instructions]
    assert len(set(names)) == len(names)


def test_a_kernel_call_remembers_where_it_comes_from() -> None:
    text = PLAIN.replace(DOT, f'{DOT}, metadata={{op_name="jit(f)/dot_general" source_file="f.py" source_line=7}}')
    module = rewritten(text)
    (call,) = [proto for proto in module.entry.instructions if proto.opcode == "custom-call"]
    assert call.metadata.op_name == "jit(f)/dot_general"
    assert (call.metadata.source_file, call.metadata.source_line) == ("f.py", 7)


def test_the_result_has_its_kernels_working_memory_beside_it() -> None:
    module = rewritten(PLAIN)
    (call,) = [proto for proto in module.entry.instructions if proto.opcode == "custom-call"]
    assert len(call.shape.tuple_shapes) == 2
    root = next(proto for proto in module.entry.instructions if proto.id == module.entry.root_id)
    assert (root.opcode, root.tuple_index, root.operand_ids[:]) == ("get-tuple-element", 0, [call.id])


# --- order that cannot be kept -----------------------------------------------------------------------------

# %late must run after %dot, which would be gone.
WAITING = f"""
turn {{ t.1 = (s32[], {M}) parameter(0)
  i.1 = s32[] get-tuple-element(t.1), index=0
  one = s32[] constant(1)
  more = s32[] add(i.1, one)
  v = {M} get-tuple-element(t.1), index=1
  inside = {M} dot(v, v), {DOT}
  ROOT n = (s32[], {M}) tuple(more, inside) }}
go_on {{ t.2 = (s32[], {M}) parameter(0)
  i.2 = s32[] get-tuple-element(t.2), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i.2, three), direction=LT }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  i = s32[] parameter(2)
  dot = {M} dot(x, w), {DOT}
  late = {M} copy(x), control-predecessors={{dot}}
  state = (s32[], {M}) tuple(i, late)
  loop = (s32[], {M}) while(state), condition=go_on, body=turn
  result = {M} get-tuple-element(loop), index=1
  ROOT t = ({M}, {M}) tuple(dot, result) }}
"""


def test_a_computation_that_cannot_be_rebuilt_is_refused_and_the_others_are_not() -> None:
    result = hlo_dispatch.rewrite(serialized(WAITING), policy="always")
    regions = {region.name: region for region in result.report.regions}
    assert regions["inside"].dispatched
    refusal = regions["dot"].refusal
    assert refusal is not None
    assert str(refusal) == ("rewrite-unsupported: %late must run after an instruction that would be replaced (%dot)")
    assert (regions["dot"].kernel, regions["dot"].covered) == (None, ())
    assert result.proto is not None
    assert Module.from_bytes(result.proto).entry == parsed(WAITING).entry


def test_where_that_is_all_there_is_nothing_changes() -> None:
    text = f"""
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  dot = {M} dot(x, w), {DOT}
  late = {M} copy(x), control-predecessors={{dot}}
  ROOT t = ({M}, {M}) tuple(dot, late) }}
"""
    result = hlo_dispatch.rewrite(serialized(text), policy="always")
    assert result.proto is None
    (region,) = result.report.left
    assert region.refusal is not None
    assert region.refusal.code == "rewrite-unsupported"


# %wide is not replaced, but it is dead once the kernel reads %x itself.
UNNEEDED = """
widened { p = bf16[64,64]{1,0} parameter(0)
  ROOT c = f32[64,64]{1,0} convert(p) }
ENTRY main { x = bf16[64,64]{1,0} parameter(0)
  y = f32[64,64]{1,0} parameter(1)
  wide = f32[64,64]{1,0} fusion(x), kind=kLoop, calls=widened
  late = f32[64,64]{1,0} copy(y), control-predecessors={wide}
  dot = f32[64,64]{1,0} dot(wide, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(dot, late) }
"""


def test_nobody_waits_for_what_is_dropped() -> None:
    skip_without("bf16")
    rewritten_and_run(UNNEEDED)
