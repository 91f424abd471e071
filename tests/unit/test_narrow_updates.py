"""Narrow in-place updates: a bf16 buffer that XLA widens, updates and rounds back is updated where it lies."""

from __future__ import annotations

import pytest

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text, to_text
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.narrow_updates import narrow_updates

H = "bf16[8,4]{1,0}"


def program(root: str, *, reader: str = "", alias: str = "{0}: (0, {}, may-alias)", inner: str = "") -> str:
    return f"""HloModule m, input_output_alias={{ {alias} }}
fused {{ p = {H} parameter(0)
  rows = f32[1,4]{{1,0}} parameter(1)
  at = s32[] parameter(2)
  zero = s32[] constant(0)
  wide = f32[8,4]{{1,0}} convert(p)
  {inner or "new = f32[1,4]{1,0} negate(rows)"}
  u = f32[8,4]{{1,0}} dynamic-update-slice(wide, new, at, zero)
  ROOT r = {H} convert(u) }}
ENTRY main {{ cache = {H} parameter(0)
  rows = f32[1,4]{{1,0}} parameter(1)
  at = s32[] parameter(2)
  {reader}
  update = {H} fusion(cache, rows, at), kind=kLoop, calls=fused, backend_config={{"outer_dimension_partitions":["2"]}}
  after = {H} negate(update)
  ROOT t = {root} }}
"""


PLAIN = f"({H}, {H}) tuple(update, after)"


def narrowed(text: str) -> str:
    module = Module.from_bytes(from_text(text))
    changed = narrow_updates(module, PassContext.__new__(PassContext))
    verify(module)
    assert bool(changed) == ("narrow_update" in to_text(module.to_bytes()))
    return to_text(module.to_bytes()) if changed else ""


def test_the_rows_alone_are_rounded_and_the_buffer_is_updated() -> None:
    text = narrowed(program(PLAIN))
    assert "bf16[8,4]{1,0} dynamic-update-slice(" in text
    assert "f32[8,4]" not in text
    assert "outer_dimension_partitions" not in text


def test_another_reader_of_the_buffer_runs_before() -> None:
    text = narrowed(program(f"({H}, {H}, {H}) tuple(update, after, other)", reader=f"other = {H} negate(cache)"))
    assert "control-predecessors={%other" in text


@pytest.mark.parametrize(
    "text",
    [
        program(PLAIN, alias=""),  # the caller keeps the buffer
        program(PLAIN, alias="{1}: (0, {}, may-alias)"),  # which becomes another result
        program(f"({H}, {H}) tuple(update, both)").replace(
            f"after = {H} negate(update)", f"both = {H} add(update, cache)"
        ),  # which is read behind the update
        program(
            PLAIN,
            inner="old = f32[1,4]{1,0} dynamic-slice(wide, zero, zero), dynamic_slice_sizes={1,4}\n"
            "new = f32[1,4]{1,0} add(old, rows)",
        ),
    ],
    ids=["kept", "another result", "read afterwards", "read by the update"],
)
def test_what_stays_wide(text: str) -> None:
    assert not narrowed(text)
