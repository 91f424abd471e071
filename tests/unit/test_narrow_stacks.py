"""Narrow stacks: a loop takes a stack in its own type where XLA widens it in front of the loop."""

from __future__ import annotations

import pytest

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text, to_text
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.narrow_stacks import narrow_stacks

N, W = "bf16[4,8,3]{2,1,0}", "f32[4,8,3]{2,1,0}"
STATE = f"(s32[], f32[8,3], {W})"


def slice_of(operands: str) -> str:
    return f"f32[1,8,3]{{2,1,0}} dynamic-slice({operands}), dynamic_slice_sizes={{1,8,3}}"


def program(
    *,
    read: str = "f32[8,3]{1,0} fusion(stack, i), kind=kLoop, calls=sliced",
    sliced: str = "p, at, zero, zero",
    widen: str = f"wide = {W} fusion(weights), kind=kLoop, calls=widened",
    condition: str = "i2",
    returned: str = "stack",
    result: str = "f32[8,3]{1,0} get-tuple-element(loop), index=1",
    narrow: str = N,
    alias: str = "",
) -> str:
    return f"""HloModule m{alias}
widened {{ w = {narrow} parameter(0)
  ROOT c = {W} convert(w) }}
computed {{ w = {W} parameter(0)
  half = {N} convert(w)
  n = {N} negate(half)
  ROOT c = {W} convert(n) }}
sliced {{ p = {W} parameter(0)
  at = s32[] parameter(1)
  zero = s32[] constant(0)
  s = {slice_of(sliced)}
  r = bf16[1,8,3]{{2,1,0}} convert(s)
  f = f32[1,8,3]{{2,1,0}} convert(r)
  ROOT b = f32[8,3]{{1,0}} bitcast(f) }}
all {{ p = {W} parameter(0)
  at = s32[] parameter(1)
  zero = s32[] constant(0)
  n = {W} negate(p)
  s = {slice_of("n, at, zero, zero")}
  ROOT b = f32[8,3]{{1,0}} bitcast(s) }}
body {{ state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8,3]{{1,0}} get-tuple-element(state), index=1
  stack = {W} get-tuple-element(state), index=2
  layer = {read}
  y = f32[8,3]{{1,0}} add(x, layer)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  other = {W} negate(stack)
  ROOT t = {STATE} tuple(next, y, {returned}) }}
condition {{ state = {STATE} parameter(0)
  i2 = s32[] get-tuple-element(state), index=0
  four = s32[] constant(4)
  ROOT less = pred[] compare({condition}, four), direction=LT }}
ENTRY main {{ weights = {narrow} parameter(0)
  x = f32[8,3]{{1,0}} parameter(1)
  plain = {W} parameter(2)
  begin = s32[] constant(0)
  first = s32[] copy(begin)
  {widen}
  state = {STATE} tuple(first, x, wide)
  loop = {STATE} while(state), condition=condition, body=body, backend_config={{"known_trip_count":{{"n":"4"}}}}
  found = {result}
  last = {N} negate(weights)
  ROOT all = (f32[8,3]{{1,0}}, {N}) tuple(found, last) }}
""".replace(f"  other = {W} negate(stack)\n", "" if returned == "stack" else f"  other = {W} negate(stack)\n")


def narrowed(text: str) -> str:
    module = Module.from_bytes(from_text(text))
    context = PassContext.__new__(PassContext)
    changed = narrow_stacks(module, context)
    verify(module)
    assert (context.stock is not None) == bool(changed)
    return to_text(module.to_bytes()) if changed else ""


def test_the_loop_takes_the_stack_as_it_is() -> None:
    text = narrowed(program())
    assert "f32[4,8,3]" not in text[text.index("%sliced") : text.index("ENTRY")]
    assert "bf16[1,8,3]{2,1,0} dynamic-slice(" in text
    assert "calls=%widened" not in text
    # What rounded the slice back reads the slice; it is widened once.
    assert text.count("f32[1,8,3]{2,1,0} convert(") == 1


def test_a_slice_in_the_body_itself() -> None:
    read = "f32[8,3]{1,0} bitcast(layer0)"
    text = program(read=read).replace(
        "  layer = ",
        f"  zero = s32[] constant(0)\n  layer0 = {slice_of('stack, i, zero, zero')}\n  layer = ",
    )
    text = narrowed(text)
    assert "bf16[1,8,3]{2,1,0} dynamic-slice(" in text
    assert "f32[1,8,3]{2,1,0} convert(" in text


def test_a_fusion_that_computes_the_narrow_stack_ends_with_it() -> None:
    text = narrowed(program(widen=f"wide = {W} fusion(plain), kind=kLoop, calls=computed"))
    assert "bf16[4,8,3]{2,1,0} fusion(%plain" in text


def test_a_stack_that_is_overwritten_is_copied() -> None:
    text = narrowed(program(alias=", input_output_alias={ {1}: (0, {}, may-alias) }"))
    assert "bf16[4,8,3]{2,1,0} copy(%weights)" in text
    assert "bf16[4,8,3]{2,1,0} copy(" not in narrowed(program())


@pytest.mark.parametrize(
    "text",
    [
        program(read="f32[8,3]{1,0} fusion(stack, i), kind=kLoop, calls=all"),  # more than slices
        program(read="f32[8,3]{1,0} fusion(stack, i), kind=kCustom, calls=sliced"),  # a library's
        program(returned="other"),  # the stack changes
        program(result="f32[8,3]{1,0} get-tuple-element(loop), index=1\n  rest = "
                f"{W} get-tuple-element(loop), index=2").replace("tuple(found, last)", "tuple(found, last, rest)")
        .replace(f"ROOT all = (f32[8,3]{{1,0}}, {N})", f"ROOT all = (f32[8,3]{{1,0}}, {N}, {W})"),  # and is a result
        program(widen=f"wide = {W} negate(plain)"),  # nothing is widened
        program(narrow="s32[4,8,3]{2,1,0}").replace(f"last = {N} negate", f"last = {N} convert"),  # values are lost
    ],
    ids=["whole", "library", "changed", "result", "computed-wide", "integers"],
)  # fmt: skip
def test_what_stays_wide(text: str) -> None:
    assert narrowed(text) == ""
