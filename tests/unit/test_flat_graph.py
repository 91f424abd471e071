"""Flat graph: expanded fusions, value numbering of duplicates, opaque fusions."""

from __future__ import annotations

import pytest

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.reduction import applied_by
from matching import doubling_fusions, flattened, instruction, node, parsed

# XLA writes the bias and the relu out in each of the fusions that need them.
DUPLICATED = """
first { a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  add.1 = f32[4]{0} add(a, b)
  ROOT negate = f32[4]{0} negate(add.1) }
second { b.2 = f32[4]{0} parameter(0)
  a.2 = f32[4]{0} parameter(1)
  add.2 = f32[4]{0} add(a.2, b.2)
  ROOT tanh = f32[4]{0} tanh(add.2) }
ENTRY main { x = f32[4]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  one = f32[4]{0} fusion(x, y), kind=kLoop, calls=first
  two = f32[4]{0} fusion(y, x), kind=kLoop, calls=second
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(one, two) }
"""


def opcodes(graph: FlatGraph) -> list[str]:
    return [value.opcode for value in graph.nodes]


def users(value: Node) -> list[str]:
    return [user.opcode for user in value.users]


def producers(graph: FlatGraph, value: Node) -> list[str]:
    return [graph.instruction_of[producer].name for producer in value.producers]


def test_duplicates_become_one_value_with_both_homes() -> None:
    graph = flattened(DUPLICATED)
    assert opcodes(graph) == ["parameter", "parameter", "add", "negate", "tanh", "tuple"]
    add = node(graph, "add.1")
    assert producers(graph, add) == ["one", "two"]
    assert users(add) == ["negate", "tanh"]
    assert add.top_level_id is None
    assert graph.instruction_of[node(graph, "tanh").top_level_id].name == "two"


def test_members() -> None:
    graph = flattened(DUPLICATED)
    by_name = {graph.instruction_of[fusion].name: inside for fusion, inside in graph.members.items()}
    assert {name: [member.opcode for member in inside] for name, inside in by_name.items()} == {
        "one": ["add", "negate"],
        "two": ["add", "tanh"],
    }


def test_operands_in_another_order_are_another_value() -> None:
    """An add of the operands the other way round is left as another node: nothing relies on more."""
    graph = flattened(DUPLICATED.replace("add(a.2, b.2)", "add(b.2, a.2)"))
    assert opcodes(graph).count("add") == 2


def test_the_root_is_live_out() -> None:
    graph = flattened(DUPLICATED)
    assert [value.opcode for value in graph.nodes if value.is_live_out] == ["tuple"]


def test_equal_constants_are_one_value_and_others_are_not() -> None:
    graph = flattened("""
ENTRY main { a = f32[] constant(1)
  b = f32[] constant(1)
  c = f32[] constant(2)
  d = bf16[] constant(1)
  ROOT t = (f32[], f32[], f32[], bf16[]) tuple(a, b, c, d) }
""")
    assert opcodes(graph) == ["constant"] * 3 + ["tuple"]


def test_meaning_lies_in_fields_too() -> None:
    """Broadcasts, slices and compares are the same value only where their attributes are, too."""
    graph = flattened("""
ENTRY main { x = f32[4]{0} parameter(0)
  rows = f32[4,4]{1,0} broadcast(x), dimensions={0}
  rows.2 = f32[4,4]{1,0} broadcast(x), dimensions={0}, metadata={op_name="elsewhere"}
  columns = f32[4,4]{1,0} broadcast(x), dimensions={1}
  head = f32[2]{0} slice(x), slice={[0:2]}
  tail = f32[2]{0} slice(x), slice={[2:4]}
  less = pred[4]{0} compare(x, x), direction=LT
  more = pred[4]{0} compare(x, x), direction=GT
  ROOT t = (f32[4,4]{1,0}, f32[4,4]{1,0}, f32[4,4]{1,0}, f32[2]{0}, f32[2]{0}, pred[4]{0}, pred[4]{0})
    tuple(rows, rows.2, columns, head, tail, less, more) }
""")
    assert opcodes(graph) == ["parameter", "broadcast", "broadcast", "slice", "slice", "compare", "compare", "tuple"]


def test_what_has_effects_or_is_random_is_never_the_same() -> None:
    graph = flattened("""
ENTRY main { x = f32[4]{0} parameter(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  a = f32[4]{0} custom-call(x), custom_call_target="count"
  b = f32[4]{0} custom-call(x), custom_call_target="count"
  c = f32[4]{0} rng(zero, one), distribution=rng_uniform
  d = f32[4]{0} rng(zero, one), distribution=rng_uniform
  ROOT t = (f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(a, b, c, d) }
""")
    assert opcodes(graph).count("custom-call") == 2
    assert opcodes(graph).count("rng") == 2


def test_a_copy_outside_a_fusion_is_kept() -> None:
    """Copy insertion put it there; one inside a fusion only says how the result is laid out."""
    graph = flattened("""
fused { p = f32[4]{0} parameter(0)
  copied = f32[4]{0} copy(p)
  ROOT negate = f32[4]{0} negate(copied) }
ENTRY main { x = f32[4]{0} parameter(0)
  apart = f32[4]{0} copy(x)
  again = f32[4]{0} copy(x)
  fusion = f32[4]{0} fusion(x), kind=kLoop, calls=fused
  ROOT t = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(apart, again, fusion) }
""")
    assert opcodes(graph) == ["parameter", INSERTED_COPY, INSERTED_COPY, "copy", "negate", "tuple"]


def test_a_fusion_of_several_results_is_not_opened() -> None:
    graph = flattened("""
fused { p = f32[4]{0} parameter(0)
  negate = f32[4]{0} negate(p)
  tanh = f32[4]{0} tanh(p)
  ROOT two = (f32[4]{0}, f32[4]{0}) tuple(negate, tanh) }
ENTRY main { x = f32[4]{0} parameter(0)
  fusion = (f32[4]{0}, f32[4]{0}) fusion(x), kind=kLoop, calls=fused
  left = f32[4]{0} get-tuple-element(fusion), index=0
  again = f32[4]{0} get-tuple-element(fusion), index=0
  ROOT difference = f32[4]{0} subtract(left, again) }
""")
    assert opcodes(graph) == ["parameter", "fusion", "get-tuple-element", "subtract"]
    assert graph.members == {}


def test_a_fusion_that_must_wait_is_not_opened() -> None:
    graph = flattened("""
fused { p = f32[4]{0} parameter(0)
  ROOT negate = f32[4]{0} negate(p) }
ENTRY main { x = f32[4]{0} parameter(0)
  tanh = f32[4]{0} tanh(x)
  fusion = f32[4]{0} fusion(x), kind=kLoop, calls=fused, control-predecessors={tanh}
  ROOT t = (f32[4]{0}, f32[4]{0}) tuple(tanh, fusion) }
""")
    assert opcodes(graph) == ["parameter", "tanh", "fusion", "tuple"]


def test_an_instruction_that_must_wait_is_its_own_value() -> None:
    graph = flattened("""
ENTRY main { x = f32[4]{0} parameter(0)
  early = f32[4]{0} tanh(x)
  late = f32[4]{0} tanh(x), control-predecessors={early}
  ROOT t = (f32[4]{0}, f32[4]{0}) tuple(early, late) }
""")
    assert opcodes(graph) == ["parameter", "tanh", "tanh", "tuple"]


def test_nested_fusions_are_opened_together() -> None:
    graph = flattened("""
inner { q = f32[4]{0} parameter(0)
  ROOT tanh = f32[4]{0} tanh(q) }
outer { p = f32[4]{0} parameter(0)
  negate = f32[4]{0} negate(p)
  ROOT nested = f32[4]{0} fusion(negate), kind=kLoop, calls=inner }
ENTRY main { x = f32[4]{0} parameter(0)
  ROOT fusion = f32[4]{0} fusion(x), kind=kLoop, calls=outer }
""")
    assert opcodes(graph) == ["parameter", "negate", "tanh"]
    assert graph.root is node(graph, "tanh")
    assert {producers(graph, value)[0] for value in graph.nodes[1:]} == {"fusion"}


def test_a_fusion_that_passes_its_operand_on_is_that_value() -> None:
    graph = flattened("""
fused { ROOT p = f32[4]{0} parameter(0) }
ENTRY main { x = f32[4]{0} parameter(0)
  fusion = f32[4]{0} fusion(x), kind=kLoop, calls=fused
  ROOT negate = f32[4]{0} negate(fusion) }
""")
    assert opcodes(graph) == ["parameter", "negate"]
    assert graph.value_of[instruction(graph.module, "fusion").id] is node(graph, "x")
    assert graph.instruction_of[node(graph, "x").top_level_id].name == "x"


def test_dead_members_are_nobodys_users() -> None:
    """XLA leaves dead code inside fusions; it must not look like a second use."""
    graph = flattened("""
fused { p = f32[4]{0} parameter(0)
  tanh = f32[4]{0} tanh(p)
  dead = f32[4]{0} negate(tanh)
  deader = f32[4]{0} sine(dead)
  ROOT cosine = f32[4]{0} cosine(tanh) }
ENTRY main { x = f32[4]{0} parameter(0)
  ROOT fusion = f32[4]{0} fusion(x), kind=kLoop, calls=fused }
""")
    assert users(node(graph, "tanh")) == ["cosine"]
    assert [value.index for value in graph.nodes] == list(range(5))


def test_an_unused_instruction_outside_fusions_stays_a_user() -> None:
    """It may have an effect, and it will run."""
    graph = flattened("""
ENTRY main { x = f32[4]{0} parameter(0)
  call = f32[4]{0} custom-call(x), custom_call_target="print"
  ROOT negate = f32[4]{0} negate(x) }
""")
    assert sorted(users(node(graph, "x"))) == ["custom-call", "negate"]


def test_one_use_twice_is_one_user() -> None:
    graph = flattened("ENTRY main { x = f32[4]{0} parameter(0)\n ROOT square = f32[4]{0} multiply(x, x) }")
    assert users(node(graph, "x")) == ["multiply"]


# --- widening ----------------------------------------------------------------------------------------------

WIDENED_EARLY = """
fused { p = bf16[4,8]{1,0} parameter(0)
  wide = f32[4,8]{1,0} convert(p)
  turned = f32[8,4]{0,1} transpose(wide), dimensions={1,0}
  ROOT apart = f32[8,4]{1,0} copy(turned) }
ENTRY main { x = bf16[4,8]{1,0} parameter(0)
  ROOT fusion = f32[8,4]{1,0} fusion(x), kind=kLoop, calls=fused }
"""


def test_widening_comes_after_what_rearranges() -> None:
    graph = flattened(WIDENED_EARLY)
    widened = graph.root
    (moved,) = widened.operands
    assert (widened.opcode, moved.opcode, moved.operands[0].opcode) == ("convert", "copy", "transpose")
    assert [str(value.shape) for value in (moved, moved.operands[0])] == ["bf16[8,4]{1,0}", "bf16[8,4]{0,1}"]
    assert moved.operands[0].operands == (node(graph, "x"),)
    assert users(node(graph, "x")) == ["transpose"], "XLA's own f32 values have no users any more"


def test_what_was_rearranged_early_belongs_to_its_fusion() -> None:
    graph = flattened(WIDENED_EARLY)
    (fusion,) = graph.members
    assert {"copy", "transpose"} <= {member.opcode for member in graph.members[fusion]}
    assert all(value.producers == [fusion] for value in (graph.root.operands[0], graph.root.operands[0].operands[0]))


def test_widening_comes_after_a_bitcast_outside_of_fusions() -> None:
    graph = flattened("""
ENTRY main { x = bf16[4,8]{1,0} parameter(0)
  wide = f32[4,8]{1,0} convert(x)
  flat = f32[32]{0} bitcast(wide)
  ROOT tanh = f32[32]{0} tanh(flat) }
""")
    (widened,) = graph.root.operands
    assert (widened.opcode, widened.operands[0].opcode) == ("convert", "bitcast")
    assert graph.instruction_of[widened.top_level_id].name == "flat"
    assert graph.computed_by(widened.top_level_id) == [widened, widened.operands[0]]
    assert users(node(graph, "x")) == ["bitcast"]


def test_other_converts_stay_where_they_are() -> None:
    """Rounding, and copies outside of fusions, which copy insertion has put there."""
    graph = flattened("""
ENTRY main { x = f32[4,8]{1,0} parameter(0)
  y = bf16[4,8]{1,0} parameter(1)
  narrow = bf16[4,8]{1,0} convert(x)
  flat = bf16[32]{0} bitcast(narrow)
  wide = f32[4,8]{1,0} convert(y)
  apart = f32[4,8]{1,0} copy(wide)
  ROOT t = (bf16[32]{0}, f32[4,8]{1,0}) tuple(flat, apart) }
""")
    assert [value.opcode for value in graph.root.operands] == ["bitcast", INSERTED_COPY]
    assert [value.operands[0].opcode for value in graph.root.operands] == ["convert", "convert"]


# --- what is no HLO -------------------------------------------------------------------------------


def test_a_fusion_that_calls_itself_is_refused() -> None:
    """Nested without end, it took the process down."""
    module = parsed(DUPLICATED)
    one = instruction(module, "one")
    one.called_computation_ids[:] = [module.entry.id]
    with pytest.raises(ModuleError, match=r"computation main is no HLO: .* calls itself"):
        FlatGraph(module, module.entry)


def test_a_parameter_without_an_operand_is_refused() -> None:
    module = parsed(DUPLICATED)
    instruction(module, "b").parameter_number = 2
    with pytest.raises(ModuleError, match="fewer operands than parameters"):
        FlatGraph(module, module.entry)


def test_a_computation_that_is_not_there_is_refused() -> None:
    module = parsed(DUPLICATED)
    instruction(module, "one").called_computation_ids[:] = [77]
    with pytest.raises(ModuleError, match="computation 77 is called and not there"):
        FlatGraph(module, module.entry)


def test_an_operand_that_is_not_there_is_refused() -> None:
    module = parsed(DUPLICATED)
    instruction(module, "one").operand_ids[:] = [instruction(module, "x").id, 1 << 40]
    with pytest.raises(ModuleError, match="an operand is not before its user"):
        FlatGraph(module, module.entry)


def test_fusions_that_double_are_expanded_as_far_as_is_sensible() -> None:
    assert flattened(doubling_fusions(4)).root.opcode == "add"
    with pytest.raises(ModuleError, match="call each other too often"):
        flattened(doubling_fusions(40))


def test_a_reduction_by_a_computation_that_is_not_there_is_refused() -> None:
    module = parsed("""
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main { x = f32[4,8]{1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[4]{0} reduce(x, zero), dimensions={1}, to_apply=sum }
""")
    graph = FlatGraph(module, module.entry)
    assert applied_by(graph.root, graph) == "add"
    graph.root.proto.called_computation_ids[:] = [77]
    with pytest.raises(ModuleError, match="computation 77 is called and not there"):
        applied_by(graph.root, graph)


def test_a_field_of_another_wire_type_is_unknown() -> None:
    """As protobuf takes it: the number of a parameter, as bytes."""
    module = parsed(DUPLICATED)
    instruction(module, "b").MergeFromString(b"\x4a\x00")
    flat = FlatGraph(module := Module.from_bytes(module.to_bytes()), module.entry)
    assert [operand.index for operand in node(flat, "add.1").operands] == [0, 1]
