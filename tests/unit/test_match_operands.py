"""Operands of products: transposed and half precision views in memory."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.match import Match
from matching import flattened, matches, only_match


def product(operands: str, dot: str = "lhs_contracting_dims={1}, rhs_contracting_dims={0}") -> dict:
    """The attributes of %dot of %l and %r, and where each operand comes from."""
    match = only_match(f"ENTRY main {{ {operands}\n ROOT dot = f32[4,16]{{1,0}} dot(l, r), {dot} }}")
    return match.attributes() | {"from": [view.node.name for view in match.operands.values()]}


def widened(source: str, weights: str) -> str:
    return f"""
  x = {source}[4,8]{{1,0}} parameter(0)
  w = {weights}[8,16]{{1,0}} parameter(1)
  l = f32[4,8]{{1,0}} convert(x)
  r = f32[8,16]{{1,0}} convert(w)
"""


@pytest.mark.parametrize("half", ["bf16", "f16"])
def test_both_widened_from_one_type_are_read_before(half: str) -> None:
    found = product(widened(half, half))
    assert (found["src_type"], found["weights_type"], found["dst_type"]) == (half, half, "f32")
    assert found["from"] == ["x", "w"]


@pytest.mark.parametrize(("source", "weights"), [("bf16", "f32"), ("f32", "bf16"), ("bf16", "f16")])
def test_otherwise_both_are_read_in_f32(source: str, weights: str) -> None:
    found = product(widened(source, weights))
    assert (found["src_type"], found["weights_type"]) == ("f32", "f32")
    # A convert from f32 to f32 is peeled or not: the type is what counts.
    assert [name for name, kind in zip(found["from"], (source, weights), strict=True) if kind != "f32"] == [
        name for name, kind in (("l", source), ("r", weights)) if kind != "f32"
    ]


def test_a_narrowing_convert_is_not_looked_through() -> None:
    """bf16(f32 value) is another value."""
    text = """
ENTRY main { x = f32[4,8]{1,0} parameter(0)
  w = bf16[8,16]{1,0} parameter(1)
  l = bf16[4,8]{1,0} convert(x)
  ROOT dot = bf16[4,16]{1,0} dot(l, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
    match = only_match(text)
    assert [view.node.name for view in match.operands.values()] == ["l", "w"]


def test_widened_after_a_transpose() -> None:
    """Converts, bitcasts and transposes in any order between the operand and memory."""
    found = product("""
  x = bf16[32]{0} parameter(0)
  x2 = bf16[8,4]{1,0} bitcast(x)
  turned = bf16[4,8]{1,0} transpose(x2), dimensions={1,0}
  l = f32[4,8]{1,0} convert(turned)
  w = bf16[8,16]{1,0} parameter(1)
  r = f32[8,16]{1,0} convert(w)
""")
    assert found["weights_type"] == "bf16"
    assert found["src_type"] == "bf16"
    assert found["src_dims"] == [4, 8]


def test_a_transpose_is_read_in_place() -> None:
    found = product("""
  x = f32[8,4]{1,0} parameter(0)
  l = f32[4,8]{1,0} transpose(x), dimensions={1,0}
  w = f32[16,8]{1,0} parameter(1)
  r = f32[8,16]{1,0} transpose(w), dimensions={1,0}
""")
    assert found["from"] == ["x", "w"]
    assert (found["src_dims"], found["src_strides"]) == ([4, 8], [1, 4])
    assert (found["weights_dims"], found["weights_strides"]) == ([8, 16], [1, 8])


def test_contracting_the_other_way_is_the_same() -> None:
    found = product(
        "l = f32[8,4]{1,0} parameter(0)\n r = f32[16,8]{1,0} parameter(1)",
        "lhs_contracting_dims={0}, rhs_contracting_dims={1}",
    )
    assert (found["src_dims"], found["src_strides"]) == ([4, 8], [1, 4])
    assert (found["weights_dims"], found["weights_strides"]) == ([8, 16], [1, 8])


def test_an_operand_without_a_contiguous_dimension_is_read_where_it_has_one() -> None:
    """Every second column: XLA's own copy is used, not what it was copied from."""
    match = only_match("""
fused { p = f32[4,2,8]{2,1,0} parameter(0)
  turned = f32[8,4,2]{2,1,0} transpose(p), dimensions={2,0,1}
  ROOT apart = f32[8,4,2]{2,1,0} copy(turned) }
ENTRY main { x = f32[4,2,8]{2,1,0} parameter(0)
  l = f32[8,4,2]{2,1,0} fusion(x), kind=kLoop, calls=fused
  r = f32[2,4,3]{2,1,0} parameter(1)
  ROOT dot = f32[4,8,3]{2,1,0} dot(l, r), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_contracting_dims={0} }
""")
    attributes = match.attributes()
    assert attributes["src_dims"] == [4, 8, 2]
    assert 1 in attributes["src_strides"][1:]
    assert match.operands["src"].node.name == "x"


def test_several_free_and_contracting_dimensions_are_merged() -> None:
    match = only_match("""
ENTRY main { l = f32[2,3,4,5]{3,2,1,0} parameter(0)
  r = f32[4,5,6,7]{3,2,1,0} parameter(1)
  ROOT dot = f32[2,3,6,7]{3,2,1,0} dot(l, r), lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1} }
""")
    attributes = match.attributes()
    assert [attributes[f"{role}_dims"] for role in ("src", "weights", "dst")] == [[6, 20], [20, 42], [6, 42]]
    assert match.anchor.multiply_adds == 6 * 20 * 42


def test_a_matrix_times_a_vector() -> None:
    match = only_match("""
ENTRY main { l = f32[4,8]{1,0} parameter(0)
  r = f32[8]{0} parameter(1)
  ROOT dot = f32[4]{0} dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
""")
    attributes = match.attributes()
    assert [attributes[f"{role}_dims"] for role in ("src", "weights", "dst")] == [[4, 8], [8, 1], [4, 1]]


def test_operands_are_in_memory_for_the_kernel_as_the_program_has_them() -> None:
    """A product between two products: the later one reads the earlier one's result where it was widened."""
    found = matches(
        flattened("""
ENTRY main { x = bf16[8,8]{1,0} parameter(0)
  first = bf16[8,8]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[8,8]{1,0} convert(first)
  other = f32[8,8]{1,0} convert(x)
  ROOT second = f32[8,8]{1,0} dot(wide, other), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
""")
    )
    assert [view.node.name for view in found["second"].operands.values()] == ["first", "x"]
    assert found["first"].output.name == "first"


@pytest.mark.parametrize(
    ("text", "code", "guilty"),
    [
        ("ROOT d = f32[4,2]{1,0} dot(a, b)", "zero-size", "a"),
        ("ROOT d = f64[4,2]{1,0} dot(c, e)", "dtype-unsupported", "d"),
    ],
)
def test_refusals_name_the_guilty(text: str, code: str, guilty: str) -> None:
    (refusal,) = matches(
        flattened(f"""
ENTRY main {{ a = f32[4,0]{{1,0}} parameter(0)
  b = f32[0,2]{{1,0}} parameter(1)
  c = f64[4,3]{{1,0}} parameter(2)
  e = f64[3,2]{{1,0}} parameter(3)
  {text}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
""")
    ).values()
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.instruction) == (code, guilty)


# --- half precision behind what rearranges ------------------------------------------------------------------


def test_widened_ahead_of_a_copy_that_cannot_be_read_through() -> None:
    """The copy becomes one of bf16: half as much to move, and a product of the narrow type."""
    match = only_match("""
fused { p = bf16[8,4,40]{2,1,0} parameter(0)
  wide = f32[8,4,40]{2,1,0} convert(p)
  turned = f32[4,8,40]{2,0,1} transpose(wide), dimensions={1,0,2}
  ROOT apart = f32[4,8,40]{2,1,0} copy(turned) }
ENTRY main { x = bf16[8,4,40]{2,1,0} parameter(0)
  w = bf16[320,16]{1,0} parameter(1)
  copied = f32[4,8,40]{2,1,0} fusion(x), kind=kLoop, calls=fused
  l = f32[4,320]{1,0} bitcast(copied)
  r = f32[320,16]{1,0} convert(w)
  ROOT dot = f32[4,16]{1,0} dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
""")
    attributes = match.attributes()
    assert (attributes["src_type"], attributes["weights_type"]) == ("bf16", "bf16")
    assert (attributes["src_dims"], attributes["src_strides"]) == ([4, 320], [320, 1])


def test_a_convolution_of_what_was_widened_and_then_transposed() -> None:
    """As XLA:CPU has the first convolution of a model that takes its image channels first."""
    match = only_match("""
fused { p = bf16[1,4,8,8]{3,2,1,0} parameter(0)
  wide = f32[1,4,8,8]{3,2,1,0} convert(p)
  turned = f32[1,8,8,4]{2,1,3,0} transpose(wide), dimensions={0,2,3,1}
  ROOT apart = f32[1,8,8,4]{3,2,1,0} copy(turned) }
ENTRY main { x = bf16[1,4,8,8]{3,2,1,0} parameter(0)
  w = bf16[3,3,4,16]{3,2,1,0} parameter(1)
  l = f32[1,8,8,4]{3,2,1,0} fusion(x), kind=kLoop, calls=fused
  r = f32[3,3,4,16]{3,2,1,0} convert(w)
  ROOT c = f32[1,8,8,16]{3,2,1,0} convolution(l, r), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f }
""")
    attributes = match.attributes()
    assert (attributes["src_type"], attributes["weights_type"]) == ("bf16", "bf16")
    assert attributes["src_strides"] == [256, 1, 32, 4]


# --- where an operand lies ----------------------------------------------------------------------------------

UNDER_ANOTHER_SHAPE = """
flattened { p = f32[1,160,160]{2,1,0} parameter(0)
  tanh = f32[1,160,160]{2,1,0} tanh(p)
  ROOT flat = f32[160,160]{1,0} bitcast(tanh) }
added { p.2 = f32[1,160,160]{2,1,0} parameter(0)
  product = f32[160,160]{1,0} parameter(1)
  tanh.2 = f32[1,160,160]{2,1,0} tanh(p.2)
  three = f32[1,160,160]{2,1,0} bitcast(product)
  ROOT sum = f32[1,160,160]{2,1,0} add(three, tanh.2) }
ENTRY main { x = f32[1,160,160]{2,1,0} parameter(0)
  w = f32[160,160]{1,0} parameter(1)
  fusion = f32[160,160]{1,0} fusion(x), kind=kLoop, calls=flattened
  dot = f32[160,160]{1,0} dot(SOURCE, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT end = f32[1,160,160]{2,1,0} fusion(x, dot), kind=kLoop, calls=added }
"""


@pytest.mark.parametrize("source", ["w", "fusion"])
def test_a_residual_that_is_only_in_memory_as_a_bitcast_of_itself(source: str) -> None:
    match = only_match(UNDER_ANOTHER_SHAPE.replace("SOURCE", source))
    assert match.output.name == "sum"
    assert match.operands["post_op_0"].node.name == "flat"
    assert match.attributes()["post_op_0"]["strides"] == [160, 1]


def test_a_source_is_read_where_it_is_in_memory_too() -> None:
    """Not what the bitcast renames, which would have to be computed once more."""
    match = only_match(UNDER_ANOTHER_SHAPE.replace("SOURCE", "fusion"))
    assert match.operands["src"].node.name == "flat"


def test_a_bitcast_that_another_match_has_taken_is_no_operand() -> None:
    graph = flattened(UNDER_ANOTHER_SHAPE.replace("SOURCE", "w"))
    (match,) = matches(graph, taken={value for value in graph.nodes if value.name == "flat"}).values()
    assert isinstance(match, Match)
    assert match.output.name == "three"


BEFORE_ROUNDING = """
fused { product = f32[160,160]{1,0} parameter(0)
  p = f32[160,160]{1,0} parameter(1)
  MADE
  narrow = bf16[160,160]{1,0} convert(value)
  wide = f32[160,160]{1,0} convert(narrow)
  ROOT sum = f32[160,160]{1,0} add(product, wide) }
ENTRY main { x = f32[160,160]{1,0} parameter(0)
  w = f32[160,160]{1,0} parameter(1)
  dot = f32[160,160]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT end = f32[160,160]{1,0} fusion(dot, w), kind=kLoop, calls=fused }
"""


def test_a_rounded_residual_is_read_before_it_was_rounded() -> None:
    match = only_match(BEFORE_ROUNDING.replace("  MADE\n", "").replace("convert(value)", "convert(p)"))
    assert match.output.name == "sum"
    read = list(match.operands.values())[-1]
    assert (read.node.name, read.element_type) == ("w", "f32")


def test_a_rounded_residual_that_is_nowhere_in_memory_stays_with_xla() -> None:
    match = only_match(BEFORE_ROUNDING.replace("MADE", "value = f32[160,160]{1,0} sine(p)").replace("160", "256"))
    assert match.output.name == "dot"
    assert "not in memory" in match.fused.chain.why


def test_a_rounded_value_that_is_in_memory_is_read_as_it_is() -> None:
    """The same residual rounded, and in memory rounded: half as much to read, and exact."""
    match = only_match("""
ENTRY main { x = f32[160,160]{1,0} parameter(0)
  w = f32[160,160]{1,0} parameter(1)
  narrow = bf16[160,160]{1,0} convert(w)
  wide = f32[160,160]{1,0} convert(narrow)
  dot = f32[160,160]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT sum = f32[160,160]{1,0} add(dot, wide) }
""")
    read = list(match.operands.values())[-1]
    assert (read.node.name, read.element_type) == ("narrow", "bf16")


def read_through_copy(before: str, after: str) -> str:
    """What a convolution's source is read from, where a fusion's copy gives it another layout."""
    match = only_match(f"""
    copying {{
      given = f32[2,1,1,8]{before} parameter(0)
      ROOT l = f32[2,1,1,8]{after} copy(given)
    }}
    ENTRY main {{
      x = f32[2,1,1,8]{before} parameter(0)
      turned = f32[2,1,1,8]{after} fusion(x), kind=kLoop, calls=copying
      w = f32[1,1,8,4]{{3,2,1,0}} parameter(1)
      ROOT y = f32[2,1,1,4]{{3,2,1,0}} convolution(turned, w), window={{size=1x1}}, dim_labels=b01f_01io->b01f
    }}""")
    return match.anchor.source.node.name


def test_a_copy_that_only_renames_a_layout_is_looked_through() -> None:
    """XLA leaves one behind a mean over space that keeps its dimensions."""
    assert read_through_copy("{3,0,2,1}", "{3,2,1,0}") == "x"


@pytest.mark.parametrize("before", ["{3,2,1,0}", "{0,3,2,1}"])
def test_other_copies_of_a_source_are_not(before: str) -> None:
    """What is copied as it lies may be written in place later, and elements that move have moved."""
    assert read_through_copy(before, "{3,2,1,0}") == "l"
