"""Glue ops, which a kernel computes only between other calls: their conditions and their normalizers."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.process.machine import this_machine
from matching import finder, flattened, node, table

SUM = "r { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def glue_ops(body: str) -> dict[str, Match | Refusal]:
    graph = flattened(f"{SUM}ENTRY e {{\n{body}\n}}")
    results = {node(graph, "x")}  # as if a call gave it
    matcher = Matcher(graph, table(), finder(), this_machine())
    return {n.name: matcher.match(n, lambda _: False, {graph.root}.__contains__, results) for n in matcher.glue_ops()}


def only(body: str) -> Match:
    (found,) = glue_ops(body).values()
    assert isinstance(found, Match), found
    return found


def reduced(shape: str, dimensions: str, result: str, start: str = "0") -> str:
    return f"""
  x = f32[{shape}] parameter(0)
  zero = f32[] constant({start})
  ROOT sum = f32[{result}] reduce(x, zero), dimensions={{{dimensions}}}, to_apply=r"""


def test_a_sum_over_space_is_one_window():
    found = only(reduced("2,5,7,11", "1,2", "2,11")).attributes()
    assert (found["src_dims"], found["src_strides"]) == ([2, 11, 5, 7], [385, 1, 77, 11])
    assert (found["dst_dims"], found["dst_strides"]) == ([2, 11, 1, 1], [11, 1, 11, 11])
    assert found["window"] == [5, 7]
    assert found["post_op_0"]["alpha"] == 35.0


def test_one_image_without_its_batch():
    found = only(reduced("1,5,7,11", "0,1,2", "11")).attributes()
    assert (found["src_dims"], found["dst_dims"]) == ([1, 11, 1, 5, 7], [1, 11, 1, 1, 1])


def test_rows_are_space_too():
    found = only(reduced("9,4", "0", "4")).attributes()
    assert (found["src_dims"], found["dst_dims"], found["window"]) == ([1, 4, 9], [1, 4, 1], [9])


@pytest.mark.parametrize(
    ("shape", "dimensions", "result"), [("2,5,7,11", "3", "2,5,7"), ("9,4", "1", "9"), ("9", "0", "")]
)
def test_a_sum_over_channels_is_none(shape: str, dimensions: str, result: str):
    assert not glue_ops(reduced(shape, dimensions, result))


def test_a_sum_that_starts_elsewhere_is_refused():
    (found,) = glue_ops(reduced("2,5,7,11", "1,2", "2,11", start="1")).values()
    assert isinstance(found, Refusal)
    assert found.code == "reducer-unsupported"


def scaled(other: str, dimensions: str, shape: str = "2,5,7,11") -> str:
    return f"""
  x = f32[{shape}] parameter(0)
  scale = f32[{other}] parameter(1)
  scales = f32[{shape}] broadcast(scale), dimensions={{{dimensions}}}
  ROOT product = f32[{shape}] multiply(scales, x)"""


@pytest.mark.parametrize(
    ("other", "dimensions", "dims", "steps"),
    [
        ("11", "3", [1, 11, 1, 1], [11, 1, 11, 11]),
        ("2,11", "0,3", [2, 11, 1, 1], [11, 1, 11, 11]),
        ("5,7", "1,2", [1, 1, 5, 7], [35, 1, 7, 1]),
    ],
)
def test_what_repeats_is_the_other_operand(other: str, dimensions: str, dims: list[int], steps: list[int]):
    found = only(scaled(other, dimensions))
    assert [view.node.name for view in found.operands.values()] == ["x", "scale"]
    attributes = found.attributes()
    assert (attributes["src_dims"], attributes["src_strides"]) == ([2, 11, 5, 7], [385, 1, 77, 11])
    post_op = attributes["post_op_0"]
    assert (post_op["kind"], post_op["algorithm"], post_op["dims"]) == ("binary", "mul", dims)
    assert post_op["strides"] == steps


def test_a_number_and_a_square_are_no_scaling():
    body = "x = f32[4,4] parameter(0)\n two = f32[] constant(2)\n twos = f32[4,4] broadcast(two), dimensions={}\n"
    body += "root = f32[4,4] sqrt(x)\n"
    assert not glue_ops(
        body + "double = f32[4,4] multiply(root, twos)\n ROOT square = f32[4,4] multiply(double, double)"
    )


def test_an_argument_times_a_number_is_a_scaling():
    """With what follows: an image that is normalized ahead of the first layer."""
    found = only("""
  x = f32[2,5,7,3] parameter(0)
  means = f32[3] parameter(1)
  part = f32[] constant(0.00392156886)
  parts = f32[2,5,7,3] broadcast(part), dimensions={}
  scaled = f32[2,5,7,3] multiply(x, parts)
  mean = f32[2,5,7,3] broadcast(means), dimensions={3}
  ROOT centred = f32[2,5,7,3] subtract(scaled, mean)""")
    assert [view.node.name for view in found.operands.values()] == ["x", "part", "means"]
    attributes = found.attributes()
    assert attributes["post_op_0"]["algorithm"] == "mul"
    assert (attributes["post_op_0"]["dims"], attributes["post_op_1"]["dims"]) == ([1, 1, 1, 1], [1, 3, 1, 1])
    assert attributes["post_op_1"]["algorithm"] == "sub"


def test_a_relu_is_the_larger_of_a_value_and_a_number():
    found = only("""
  x = f32[2,5,7,11] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[2,5,7,11] broadcast(zero), dimensions={}
  ROOT y = f32[2,5,7,11] maximum(zeros, x)""")
    assert [view.node.name for view in found.operands.values()] == ["x", "zero"]
    attributes = found.attributes()
    assert (attributes["src_dims"], attributes["src_strides"]) == ([2, 11, 5, 7], [385, 1, 77, 11])
    post_op = attributes["post_op_0"]
    assert (post_op["kind"], post_op["algorithm"], post_op["dims"]) == ("binary", "max", [1, 1, 1, 1])


def test_the_larger_of_two_values_is_no_relu():
    body = "x = f32[4,4] parameter(0)\n y = f32[4,4] parameter(1)\n"
    assert not glue_ops(body + "ROOT larger = f32[4,4] maximum(x, y)")


def joined(parts: str, result: str, number: int, order: str) -> str:
    first, second = parts.split()
    return f"""
  x = f32[{first}]{{{order}}} parameter(0)
  y = f32[{second}]{{{order}}} parameter(1)
  ROOT both = f32[{result}]{{{order}}} concatenate(x, y), dimensions={{{number}}}"""


@pytest.mark.parametrize(
    ("body", "rows", "columns"),
    [
        (joined("2,5,7,11 2,5,7,3", "2,5,7,14", 3, "3,2,1,0"), 70, [11, 3]),
        (joined("2,5,7,11 2,4,7,11", "2,9,7,11", 1, "3,2,1,0"), 2, [385, 308]),
        (joined("1,5,7 1,3,7", "1,8,7", 1, "2,1,0"), 1, [35, 21]),
        (joined("4 9", "13", 0, "0"), 1, [4, 9]),
        (joined("6,4 6,3", "6,7", 1, "0,1"), 1, [24, 18]),
        (joined("6,1 5,1", "11,1", 0, "0,1"), 1, [6, 5]),
    ],
)
def test_what_is_joined_are_matrices(body: str, rows: int, columns: list[int]):
    found = only(body)
    assert [view.node.name for view in found.operands.values()] == ["x", "y"]
    attributes = found.attributes()
    assert attributes["sources"] == 2
    assert (attributes["src_dims"], attributes["src_1_dims"]) == ([rows, columns[0]], [rows, columns[1]])
    assert (attributes["src_strides"], attributes["src_1_strides"]) == ([columns[0], 1], [columns[1], 1])
    assert (attributes["dst_dims"], attributes["dst_strides"]) == ([rows, sum(columns)], [sum(columns), 1])


def test_arrays_in_other_orders_are_not_joined():
    body = joined("2,3 2,3", "2,6", 1, "1,0").replace("y = f32[2,3]{1,0}", "y = f32[2,3]{0,1}")
    (found,) = glue_ops(body).values()
    assert isinstance(found, Refusal)
    assert found.code == "layout-unsupported"


def test_what_is_joined_already_is_read_as_that():
    """XLA writes a dense block's concatenations as if each joined all that the block has computed."""
    graph = flattened("""ENTRY e {
  x = f32[3,5] parameter(0)
  y = f32[3,2] parameter(1)
  z = f32[3,4] parameter(2)
  two = f32[3,7] concatenate(x, y), dimensions={1}
  other = f32[3,9] concatenate(x, z), dimensions={1}
  three = f32[3,11] concatenate(x, y, z), dimensions={1}
  ROOT all = (f32[3,7], f32[3,9], f32[3,11]) tuple(two, other, three)
}""")
    matcher = Matcher(graph, table(), finder(), this_machine())
    three = node(graph, "three")

    def read(*results: str) -> list[str]:
        known = {node(graph, name) for name in results}
        found = matcher.rematch(three, lambda _: False, {graph.root}.__contains__, known)
        assert isinstance(found, Match)
        return [view.node.name for view in found.operands.values()]

    assert read() == ["x", "y", "z"]
    assert read("two", "other") == ["two", "z"]


def test_what_a_fusion_would_have_to_write_is_not_joined():
    graph = flattened("""
f {
  x = f32[3,5] parameter(0)
  y = f32[3,2] parameter(1)
  n = f32[3,2] negate(y)
  ROOT c = f32[3,7] concatenate(x, n), dimensions={1}
}
ENTRY e {
  x = f32[3,5] parameter(0)
  y = f32[3,2] parameter(1)
  ROOT both = f32[3,7] fusion(x, y), kind=kLoop, calls=f
}""")
    matcher = Matcher(graph, table(), finder(), this_machine())
    (glue_op,) = matcher.glue_ops()
    found = matcher.match(glue_op, lambda _: False, {graph.root}.__contains__)
    assert isinstance(found, Refusal)
    assert found.code == "not-in-memory"
