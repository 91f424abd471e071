"""Module rewriter on partly replaced fusions: the rest computes the same values with the same kind and partitions.

Every module here is compiled and run by XLA in both forms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import calls, fusions, opcodes, rewritten, rewritten_and_run

from hlo_dispatch.analysis.loop_fusion import is_recomputed
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.ir.task_partitions import loop_backend_config
from hlo_dispatch.process.machine import this_machine
from side_by_side import assert_close, run_module

M = "f32[512,512]{1,0}"
TWO = '{"outer_dimension_partitions":["2"]}'
YNN = '{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}'
PRODUCT = f"{M} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def test_the_rest_of_a_fusion_keeps_its_partitions() -> None:
    """The kernel takes the add; erf is no post-op of its."""
    module = rewritten_and_run(f"""
fused {{ p = {M} parameter(0)
  r.1 = {M} parameter(1)
  add = {M} add(p, r.1)
  erf = {M} erf(add)
  ROOT product = {M} multiply(erf, r.1) }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  r = {M} parameter(2)
  dot = {PRODUCT}
  ROOT fusion = {M} fusion(dot, r), kind=kLoop, calls=fused, backend_config={TWO} }}
""")
    assert fusions(module) == {"erf multiply": ("kLoop", TWO)}
    assert ["add" in config for config in calls(module)] == [True]


def test_work_towards_the_result_along_two_paths() -> None:
    """The value the kernel leaves has two users in the fusion, and there is other work besides."""
    module = rewritten_and_run(f"""
fused {{ p = {M} parameter(0)
  r.1 = {M} parameter(1)
  add = {M} add(p, r.1)
  erf = {M} erf(add)
  exponential-minus-one = {M} exponential-minus-one(add)
  other = {M} tanh(r.1)
  both = {M} multiply(erf, exponential-minus-one)
  ROOT sum = {M} add(both, other) }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  r = {M} parameter(2)
  dot = {PRODUCT}
  ROOT fusion = {M} fusion(dot, r), kind=kLoop, calls=fused, backend_config={TWO} }}
""")
    ((name, how),) = fusions(module).items()
    assert sorted(name.split()) == ["add", "erf", "exponential-minus-one", "multiply", "tanh"]
    assert how == ("kLoop", TWO)


def test_each_fusion_that_had_written_it_out_keeps_its_own_partitions() -> None:
    """The add is in both fusions; the kernel computes it once for them."""
    module = rewritten_and_run(f"""
first {{ p = {M} parameter(0)
  r.1 = {M} parameter(1)
  add.1 = {M} add(p, r.1)
  ROOT erf = {M} erf(add.1) }}
second {{ p.2 = {M} parameter(0)
  r.2 = {M} parameter(1)
  add.2 = {M} add(p.2, r.2)
  exponential-minus-one = {M} exponential-minus-one(add.2)
  ROOT cut = f32[64,512]{{1,0}} slice(exponential-minus-one), slice={{[0:64], [0:512]}} }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  r = {M} parameter(2)
  dot = {PRODUCT}
  one = {M} fusion(dot, r), kind=kLoop, calls=first, backend_config={TWO}
  two = f32[64,512]{{1,0}} fusion(dot, r), kind=kLoop, calls=second
  ROOT t = ({M}, f32[64,512]{{1,0}}) tuple(one, two) }}
""")
    assert fusions(module) == {"erf": ("kLoop", TWO), "exponential-minus-one slice": ("kLoop", "")}
    assert len(calls(module)) == 1


REDUCED = f"""
sum {{ l = f32[] parameter(0)
  r.2 = f32[] parameter(1)
  ROOT s = f32[] add(l, r.2) }}
fused {{ x.1 = {M} parameter(0)
  w.1 = {M} parameter(1)
  dot = {PRODUCT.replace("(x, w)", "(x.1, w.1)")}
  zero = f32[] constant(0)
  ROOT reduce = f32[512]{{0}} reduce(dot, zero), dimensions={{1}}, to_apply=sum }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  ROOT fusion = f32[512]{{0}} fusion(x, w), kind=kCustom, calls=fused, backend_config={YNN} }}
"""


def test_the_rest_of_a_library_fusion_stays_one() -> None:
    """A reduction in a loop fusion would run on one thread."""
    module = rewritten_and_run(REDUCED)
    assert {" ".join(sorted(name.split())): how for name, how in fusions(module).items()} == {
        "constant reduce": ("kCustom", YNN)
    }
    assert len(calls(module)) == 1


def test_what_is_elementwise_of_a_library_fusion_becomes_a_loop() -> None:
    module = rewritten_and_run(f"""
fused {{ x.1 = {M} parameter(0)
  w.1 = {M} parameter(1)
  dot = {PRODUCT.replace("(x, w)", "(x.1, w.1)")}
  ROOT sign = {M} sign(dot) }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  ROOT fusion = {M} fusion(x, w), kind=kCustom, calls=fused, backend_config={YNN} }}
""")
    # XLA had no partitions for it: there are as many as there are threads.
    threads = this_machine().threads
    assert fusions(module) == {"sign": ("kLoop", loop_backend_config(row_major("f32", (512, 512)), threads).decode())}


def test_a_fusion_that_is_taken_whole_is_gone() -> None:
    module = rewritten_and_run(f"""
fused {{ p = {M} parameter(0)
  r.1 = {M} parameter(1)
  ROOT add = {M} add(p, r.1) }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  r = {M} parameter(2)
  dot = {PRODUCT}
  ROOT fusion = {M} fusion(dot, r), kind=kLoop, calls=fused, backend_config={TWO} }}
""")
    assert fusions(module) == {}
    assert [proto.name for proto in module.proto.computations] == ["async_padding", "main"]


def test_an_operand_from_inside_a_fusion_is_written_by_a_fusion_of_its_own() -> None:
    """The scale is computed in the middle of what the kernel takes."""
    module = rewritten_and_run("""
fused { p = f32[64,64]{1,0} parameter(0)
  s.1 = f32[64]{0} parameter(1)
  erf = f32[64]{0} erf(s.1)
  exponential-minus-one = f32[64]{0} exponential-minus-one(erf)
  scale = f32[64,64]{1,0} broadcast(exponential-minus-one), dimensions={1}
  scaled = f32[64,64]{1,0} multiply(p, scale)
  ROOT tanh = f32[64,64]{1,0} tanh(scaled) }
ENTRY main { x = f32[64,64]{1,0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  s = f32[64]{0} parameter(2)
  dot = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT fusion = f32[64,64]{1,0} fusion(dot, s), kind=kLoop, calls=fused }
""")
    assert fusions(module) == {"erf exponential-minus-one": ("kLoop", "")}
    (config,) = calls(module)
    assert '"mul"' in config
    assert '"tanh"' in config


def test_a_value_that_only_changes_its_name_needs_no_fusion() -> None:
    module = rewritten_and_run("""
fused { p = f32[64,64]{1,0} parameter(0)
  r.1 = f32[64,64]{1,0} parameter(1)
  add = f32[64,64]{1,0} add(p, r.1)
  ROOT flat = f32[4096]{0} bitcast(add) }
other { p.2 = f32[64,64]{1,0} parameter(0)
  r.2 = f32[64,64]{1,0} parameter(1)
  add.2 = f32[64,64]{1,0} add(p.2, r.2)
  ROOT erf = f32[64,64]{1,0} erf(add.2) }
ENTRY main { x = f32[64,64]{1,0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  r = f32[64,64]{1,0} parameter(2)
  dot = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = f32[4096]{0} fusion(dot, r), kind=kLoop, calls=fused
  two = f32[64,64]{1,0} fusion(dot, r), kind=kLoop, calls=other
  ROOT t = (f32[4096]{0}, f32[64,64]{1,0}) tuple(one, two) }
""")
    assert fusions(module) == {"erf": ("kLoop", "")}
    assert "bitcast" in [proto.opcode for proto in module.entry.instructions]


UPDATED = """
fused { buffer.1 = f32[8,64,64]{2,1,0} parameter(0)
  p = f32[64,64]{1,0} parameter(1)
  r.1 = f32[64,64]{1,0} parameter(2)
  i.1 = s32[] parameter(3)
  zero = s32[] constant(0)
  add = f32[64,64]{1,0} add(p, r.1)
  erf = f32[64,64]{1,0} erf(add)
  piece = f32[1,64,64]{2,1,0} bitcast(erf)
  ROOT update = f32[8,64,64]{2,1,0} dynamic-update-slice(buffer.1, piece, i.1, zero, zero) }
ENTRY main { buffer = f32[8,64,64]{2,1,0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  r = f32[64,64]{1,0} parameter(2)
  i = s32[] parameter(3)
  apart = f32[8,64,64]{2,1,0} copy(buffer)
  x = f32[64,64]{1,0} parameter(4)
  dot = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT fusion = f32[8,64,64]{2,1,0} fusion(apart, dot, r, i), kind=kLoop, calls=fused }
"""


@pytest.mark.parametrize("kept", [True, False], ids=["part of the piece is left", "the update alone is left"])
def test_an_update_in_place_is_written_again(kept: bool) -> None:
    text = UPDATED if kept else UPDATED.replace("erf(add)", "tanh(add)")
    module = rewritten_and_run(text)
    (fusion,) = [proto for proto in module.entry.instructions if proto.opcode == "fusion"]
    inside = set(opcodes(module, fusion)) - {"constant", "bitcast"}
    assert inside == ({"erf", "dynamic-update-slice"} if kept else {"dynamic-update-slice"})
    # It still writes over XLA's own copy, and needs no other.
    assert [proto.opcode for proto in module.entry.instructions].count("copy") == 1


def test_a_kernel_that_reads_what_is_updated_comes_first() -> None:
    """The product reads the buffer itself, past the transpose behind which XLA's own product would read it."""
    module = rewritten_and_run("""
turned { b.1 = f32[64,64]{1,0} parameter(0)
  ROOT turn = f32[64,64]{1,0} transpose(b.1), dimensions={1,0} }
written { b.2 = f32[64,64]{1,0} parameter(0)
  turn.2 = f32[64,64]{1,0} parameter(1)
  i.1 = s32[] parameter(2)
  zero = s32[] constant(0)
  row = f32[1,64]{1,0} slice(turn.2), slice={[3:4], [0:64]}
  ROOT update = f32[64,64]{1,0} dynamic-update-slice(b.2, row, i.1, zero) }
ENTRY main { buffer = f32[64,64]{1,0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  i = s32[] parameter(2)
  apart = f32[64,64]{1,0} copy(buffer)
  x = f32[64,64]{1,0} fusion(apart), kind=kLoop, calls=turned
  new = f32[64,64]{1,0} fusion(apart, x, i), kind=kLoop, calls=written
  dot = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(new, dot) }
""")
    (call,) = [proto for proto in module.entry.instructions if proto.opcode == "custom-call"]
    (copy,) = [proto for proto in module.entry.instructions if proto.opcode == "copy"]
    (update,) = [proto for proto in module.entry.instructions if "dynamic-update-slice" in opcodes(module, proto)]
    assert copy.id in call.operand_ids
    assert call.id in update.control_predecessor_ids


def test_a_loop_does_not_compute_again_what_a_library_fusion_computed_once() -> None:
    """Each step reads the one before it in two ways: in one loop that is 4096 times the first step for one element."""
    side = "f32[64,64]{1,0}"
    steps = "\n".join(
        f"t.{n} = {side} transpose(y.{n}), dimensions={{1,0}}\n  s.{n} = {side} tanh(t.{n})\n"
        f"  {'ROOT ' if n == 11 else ''}y.{n + 1} = {side} subtract(y.{n}, s.{n})"
        for n in range(12)
    )
    module = rewritten(f"""
fused {{ x.1 = {side} parameter(0)
  w.1 = {side} parameter(1)
  y.0 = {side} dot(x.1, w.1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {steps} }}
ENTRY main {{ x = {side} parameter(0)
  w = {side} parameter(1)
  ROOT all = {side} fusion(x, w), kind=kCustom, calls=fused, backend_config={YNN} }}
""")
    loops = [i for i in module.entry.instructions if i.opcode == "fusion"]
    assert {loop.fusion_kind for loop in loops} == {"kLoop"}
    for loop in loops:
        assert not is_recomputed(module.computations[loop.called_computation_ids[0]])
    x, w = (np.random.default_rng(n).standard_normal((64, 64), "float32") / 4 for n in (1, 2))
    expected = x @ w
    for _ in range(12):
        expected = expected - np.tanh(expected.T)
    (got,) = run_module(module.to_bytes(), [x, w], jax.ShapeDtypeStruct((64, 64), jnp.float32))
    assert_close(np.asarray(got), expected, 1e-3)
