"""Values that XLA computes twice, of which one is updated in place: their buffers stay two where they become results.

Of the modules only: were they one, the process would end, or a loop would read what the update wrote.
"""

from __future__ import annotations

from hlo_dispatch.api import pipeline
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.partition.loop_invariant_code_motion import hoist_loop_invariants
from hlo_dispatch.passes.partition.split_at_frontier import split_at
from matching import parsed

M = "f32[64,64]{1,0}"
R = "f32[8,64]{1,0}"
STATE = f"(s32[], {M}, {M}, {R})"
FUSIONS = f"""
one {{ p = {M} parameter(0)
  e = {M} exponential(p)
  ROOT m = {M} multiply(e, e) }}
other {{ p = {M} parameter(0)
  e = {M} exponential(p)
  ROOT m = {M} multiply(e, e) }}
updated {{ p = {M} parameter(0)
  s = {R} parameter(1)
  i = s32[] constant(3)
  z = s32[] constant(0)
  ROOT d = {M} dynamic-update-slice(p, s, i, z) }}
"""
VALUES = f"""
  a = {M} fusion(w), kind=kLoop, calls=one
  u = {M} fusion(a, r), kind=kLoop, calls=updated
  b = {M} fusion(w), kind=kLoop, calls=other
"""


def buffers_of(computation: ComputationProto, operands: list[int]) -> list[str]:
    """What writes the buffers of these values; an update writes that of its first operand."""
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    found: list[str] = []
    for operand in operands:
        instruction = by_id[operand]
        while instruction.opcode == "bitcast" or "update" in instruction.name or instruction.name.startswith("u"):
            instruction = by_id[instruction.operand_ids[0]]
        found.append(instruction.name)
    return found


def test_results_of_a_prologue() -> None:
    module = parsed(f"""{FUSIONS} ENTRY main {{
  w = {M} parameter(0)
  r = {R} parameter(1)
  y = {M} parameter(2)
  {VALUES}
  sum = {M} add(b, y)
  product = {M} multiply(u, y)
  ROOT t = ({M}, {M}) tuple(product, sum)
}}""")
    split = split_at(module, frozenset((0, 1)), 2)
    assert split is not None
    entry = split.prologue.entry
    (root,) = (instruction for instruction in entry.instructions if instruction.id == entry.root_id)
    buffers = buffers_of(entry, root.operand_ids[:])
    assert len({*buffers}) == len(buffers) == 2, buffers


def test_what_is_hoisted_from_a_loop() -> None:
    module = parsed(f"""{FUSIONS}
body {{
  p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = {M} get-tuple-element(p), index=1
  w = {M} get-tuple-element(p), index=2
  r = {R} get-tuple-element(p), index=3
  one_more = s32[] constant(1)
  j = s32[] add(i, one_more)
  {VALUES}
  t = {M} subtract(x, u)
  y = {M} add(t, b)
  ROOT o = {STATE} tuple(j, y, w, r)
}}
condition {{
  p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(16)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = {M} parameter(0)
  w = {M} parameter(1)
  r = {R} parameter(2)
  z = s32[] constant(0)
  zc = s32[] copy(z)
  xc = {M} copy(x)
  wc = {M} copy(w)
  rc = {R} copy(r)
  state = {STATE} tuple(zc, xc, wc, rc)
  loop = {STATE} while(state), condition=condition, body=body, backend_config={{"known_trip_count":{{"n":"16"}}}}
  g = {M} get-tuple-element(loop), index=1
  d = {M} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = ({M}, {M}) tuple(g, d)
}}""")
    (body,) = (computation for computation in module.proto.computations if computation.name == "body")
    context = PassContext(pipeline((), "always").planner)
    context.loop_weights = {body.id: frozenset((2, 3))}
    assert hoist_loop_invariants(module, context)
    state = _state_of_loop(module)
    buffers = buffers_of(module.entry, state)
    assert len({*buffers}) == len(buffers) >= 4, buffers


def _state_of_loop(module: Module) -> list[int]:
    by_id = {instruction.id: instruction for instruction in module.entry.instructions}
    (loop,) = (instruction for instruction in by_id.values() if instruction.opcode == "while")
    return by_id[loop.operand_ids[0]].operand_ids[:]
