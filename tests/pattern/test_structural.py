"""The structural matcher: captures, order, activations, peeling, refusals, nearest misses."""

from __future__ import annotations

from pathlib import Path

import pytest
from structures import find, flat_graph, names, sentence, write_table

from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.pattern import load_tables

XYZ = """
    x = f32[4,8] parameter(0)
    y = f32[4,8] parameter(1)
    z = f32[4,8] parameter(2)
"""


@pytest.mark.parametrize(
    "body",
    [
        "p = f32[4,8] multiply(x, y)\n ROOT r = f32[4,8] add(p, z)",
        "p = f32[4,8] multiply(y, x)\n ROOT r = f32[4,8] add(z, p)",
    ],
)
def test_both_orders_of_commutative_operations(tmp_path: Path, body: str) -> None:
    found = find(tmp_path, XYZ + body, "tanh(x) * 0.5 + x * y")
    assert not found.matches
    (operands,) = names(find(tmp_path, XYZ + body, "x * y + z"))
    assert set(operands[:2]) == {"x", "y"}
    assert operands[2] == "z"


def test_the_order_that_fits_what_follows_is_found(tmp_path: Path) -> None:
    body = (
        XYZ
        + """
        t = f32[4,8] tanh(y)
        p = f32[4,8] multiply(x, y)
        q = f32[4,8] multiply(t, z)
        ROOT r = f32[4,8] add(q, p)
    """
    )
    assert names(find(tmp_path, body, "a * b + tanh(a) * c")) == [["y", "x", "z"]]


def test_other_operations_have_one_order(tmp_path: Path) -> None:
    body = XYZ + "t = f32[4,8] tanh(x)\n ROOT r = f32[4,8] subtract(t, y)"
    assert names(find(tmp_path, body, "tanh(x) - y")) == [["x", "y"]]
    assert not find(tmp_path, body, "y - tanh(x)").matches


def test_a_repeated_name_is_one_value(tmp_path: Path) -> None:
    for operand, matches in (("x", 1), ("y", 0)):
        body = XYZ + f"t = f32[4,8] tanh({operand})\n ROOT r = f32[4,8] subtract(x, t)"
        found = find(tmp_path, body, "a - tanh(a)")
        assert len(found.matches) == matches
    assert sentence(found) == "mine: 2 of 2 operations matched; %y is not a again"


def test_a_named_inner_value_is_one_value(tmp_path: Path) -> None:
    match = "e = exponential(x)\ne / (e + y)"
    shared = XYZ + "e = f32[4,8] exponential(x)\n s = f32[4,8] add(e, y)\n ROOT r = f32[4,8] divide(e, s)"
    (found,) = find(tmp_path, shared, match).matches
    assert [node.name for node in found.covered] == ["e", "s", "r"]
    other = (
        XYZ
        + """
        e = f32[4,8] exponential(x)
        g = f32[4,8] exponential(z)
        s = f32[4,8] add(g, y)
        ROOT r = f32[4,8] divide(e, s)
    """
    )
    assert sentence(find(tmp_path, other, match)) == "mine: 3 of 3 operations matched; %g is not e again"


def test_numbers(tmp_path: Path) -> None:
    body = XYZ + "c = f32[] constant({})\n b = f32[4,8] broadcast(c), dimensions={{}}\n ROOT r = f32[4,8] add(x, b)"
    assert names(find(tmp_path, body.format("0.1"), "x + 0.1")) == [["x"]]
    assert names(find(tmp_path, body.format("-inf"), "-inf + x")) == [["x"]]
    found = find(tmp_path, body.format("0.11"), "x + 0.1")
    assert sentence(found) == "mine: 1 of 1 operations matched; %b is not the number 0.1"
    (match,) = find(tmp_path, body.format("0.25"), "x + c", where="c: {constant: true}").matches
    assert match.attributes() == {"c": 0.25}


SILU = """
    one = f32[] constant(1)
    ones = f32[4,8] broadcast(one), dimensions={}
    steep = f32[] constant(-1.5)
    minus = f32[4,8] broadcast(steep), dimensions={}
    n = f32[4,8] multiply(x, minus)
    e = f32[4,8] exponential(n)
    d = f32[4,8] add(e, ones)
"""


@pytest.mark.parametrize(
    "tail",
    [
        "q = f32[4,8] divide(x, d)",
        "s = f32[4,8] divide(ones, d)\n q = f32[4,8] multiply(x, s)",
        "s = f32[4,8] divide(ones, d)\n q = f32[4,8] multiply(s, x)",
    ],
)
def test_activations_in_any_spelling(tmp_path: Path, tail: str) -> None:
    body = XYZ + SILU + tail + "\n ROOT r = f32[4,8] add(z, q)"
    (match,) = find(tmp_path, body, "swish(x, beta) + z").matches
    assert match.attributes() == {"beta": 1.5}
    assert [view.node.name for view in match.operands.values()] == ["x", "z"]
    assert "ones" not in [node.name for node in match.covered]
    assert find(tmp_path, body, "swish(x, 1.5) + z").matches
    assert "alpha of swish is 1.5, not 2" in sentence(find(tmp_path, body, "swish(x, 2) + z"))
    assert "is not gelu_erf of anything" in sentence(find(tmp_path, body, "gelu_erf(x) + z"))


def test_an_activation_of_an_expression(tmp_path: Path) -> None:
    body = (
        XYZ
        + """
        zero = f32[] constant(0)
        zeros = f32[4,8] broadcast(zero), dimensions={}
        s = f32[4,8] add(x, y)
        m = f32[4,8] maximum(s, zeros)
        ROOT r = f32[4,8] multiply(m, m)
    """
    )
    (match,) = find(tmp_path, body, "square(relu(a + b))").matches
    assert [node.name for node in match.covered] == ["s", "m", "r"]
    (match,) = find(tmp_path, body, "m = relu(a + b)\nm * m").matches
    assert [node.name for node in match.covered] == ["s", "m", "r"]


def test_both_directions_of_a_comparison(tmp_path: Path) -> None:
    for compare in ("compare(x, y), direction=GT", "compare(y, x), direction=LT"):
        body = XYZ + f"p = pred[4,8] {compare}\n ROOT r = f32[4,8] select(p, x, z)"
        assert names(find(tmp_path, body, "select(a > b, a, c)")) == [["x", "y", "z"]]
        assert not find(tmp_path, body, "select(a >= b, a, c)").matches
        assert not find(tmp_path, body, "select(a < b, a, c)").matches


def test_converts_and_changes_of_shape_are_looked_through(tmp_path: Path) -> None:
    body = """
        x = bf16[4,8]{1,0} parameter(0)
        y = bf16[32]{0} parameter(1)
        wide = f32[4,8]{1,0} convert(x)
        t = f32[4,8]{1,0} tanh(wide)
        narrow = bf16[4,8]{1,0} convert(t)
        flat = bf16[32]{0} bitcast(narrow)
        again = f32[32]{0} convert(flat)
        other = f32[32]{0} convert(y)
        p = f32[32]{0} multiply(again, other)
        ROOT r = bf16[32]{0} convert(p)
    """
    (match,) = find(tmp_path, body, "tanh(a) * b", numerics=("bf16",)).matches
    assert [view.node.name for view in match.operands.values()] == ["x", "y"]
    assert match.output.name == "r"
    assert sentence(find(tmp_path, body, "tanh(a) * b")) == (
        "mine: 2 of 2 operations matched; no numerics are declared for bf16"
    )
    assert find(tmp_path, body, "tanh(a) * b", numerics=("bf16",), where="a: {dtype: bf16}").matches
    refused = sentence(find(tmp_path, body, "tanh(a) * b", numerics=("bf16",), where="a: {dtype: f16}"))
    assert refused == "mine: 2 of 2 operations matched; %wide is f32[4,8]{1,0}, but a has an element type of f16"


def test_an_expression_with_indices_sees_no_permutation(tmp_path: Path) -> None:
    """A bitcast that transposes keeps every element's place, but not its row."""
    body = """
        x = f32[8,8]{1,0} parameter(0)
        v = f32[8]{0} parameter(1)
        t = f32[8,8]{1,0} tanh(x)
        other = f32[8,8]{0,1} bitcast(t)
        rows = f32[8,8]{0,1} broadcast(v), dimensions={1}
        ROOT r = f32[8,8]{0,1} multiply(other, rows)
    """
    where = "result: {any_layout: true}"
    found = find(tmp_path, body, "tanh(a) * broadcast(b, along=last)", where=where)
    assert "%other is not tanh of anything" in sentence(found)
    # A dimension of one element changes nothing.
    body = """
        x = f32[1,8]{1,0} parameter(0)
        v = f32[8]{0} parameter(1)
        t = f32[1,8]{1,0} tanh(x)
        other = f32[1,1,8]{2,1,0} bitcast(t)
        rows = f32[1,1,8]{2,1,0} broadcast(v), dimensions={2}
        ROOT r = f32[1,1,8]{2,1,0} multiply(other, rows)
    """
    assert names(find(tmp_path, body, "tanh(a) * broadcast(b, along=last)")) == [["x", "v"]]


def test_layouts(tmp_path: Path) -> None:
    body = """
        x = f32[4,8]{0,1} parameter(0)
        y = f32[4,8]{0,1} parameter(1)
        t = f32[4,8]{0,1} tanh(x)
        ROOT r = f32[4,8]{0,1} multiply(t, y)
    """
    assert sentence(find(tmp_path, body, "tanh(a) * b")) == (
        "mine: 2 of 2 operations matched; %x is f32[4,8]{0,1}, and a must be row-major"
    )
    anyhow = ", ".join(f"{name}: {{any_layout: true}}" for name in ("a", "b", "result"))
    assert find(tmp_path, body, "tanh(a) * b", where=anyhow).matches
    mixed = """
        x = f32[4,8]{1,0} parameter(0)
        y = f32[4,8]{0,1} parameter(1)
        n = f32[4,8]{1,0} negate(x)
        ROOT r = f32[4,8]{0,1} multiply(n, y)
    """
    assert sentence(
        find(tmp_path, mixed, "negate(x) * y", where="y: {any_layout: true}, result: {any_layout: true}")
    ) == ("mine: 1 of 2 operations matched; %r changes the layout of %n")


def test_what_is_covered_is_used_by_nothing_else(tmp_path: Path) -> None:
    body = XYZ + "t = f32[4,8] tanh(x)\n p = f32[4,8] multiply(t, y)\n"
    used = body + "u = f32[4,8] negate(t)\n ROOT r = (f32[4,8], f32[4,8]) tuple(p, u)"
    assert sentence(find(tmp_path, used, "tanh(a) * b")) == ("mine: 2 of 2 operations matched; %t is also used by %u")
    returned = body + "ROOT r = (f32[4,8], f32[4,8]) tuple(p, t)"
    assert "%t is also used by %r" in sentence(find(tmp_path, returned, "tanh(a) * b"))
    # The result may have any users, and what is captured too.
    free = body + "u = f32[4,8] negate(p)\n ROOT r = (f32[4,8], f32[4,8], f32[4,8]) tuple(p, u, x)"
    assert len(find(tmp_path, free, "tanh(a) * b").matches) == 1


def test_nothing_is_both_covered_and_read(tmp_path: Path) -> None:
    body = XYZ + "t = f32[4,8] tanh(x)\n p = f32[4,8] multiply(t, y)\n ROOT r = f32[4,8] add(p, t)"
    assert "%t would be both covered and read" in sentence(find(tmp_path, body, "tanh(a) * b + c"))


def test_control_dependencies_are_left_alone(tmp_path: Path) -> None:
    body = XYZ + "n = f32[4,8] negate(z)\n t = f32[4,8] exponential(x), control-predecessors={n}\n"
    body += "p = f32[4,8] multiply(t, y)\n ROOT r = (f32[4,8], f32[4,8]) tuple(p, n)"
    assert "%t must run after another instruction" in sentence(find(tmp_path, body, "exponential(a) * b"))


def test_spellings_that_are_listed(tmp_path: Path) -> None:
    path = write_table(tmp_path, "x * x + y")
    text = path.read_text().replace("match: |\n      x * x + y", 'match: ["x * x + y", "square(x) + y", "y - -1 * x"]')
    path.write_text(text)
    finder = StructuralFinder(load_tables([path]))
    literal = "s = f32[4,8] multiply(x, x)\n ROOT r = f32[4,8] add(s, y)"
    spelled = "t = f32[4,8] multiply(m, x)\n ROOT r = f32[4,8] subtract(y, t)"
    one = "c = f32[] constant(-1)\n m = f32[4,8] broadcast(c), dimensions={}\n"
    for body in (literal, one + spelled):
        (match,) = finder.find(flat_graph(XYZ + body)).matches
        assert [view.node.name for view in match.operands.values()] == ["x", "y"]


def test_the_nearest_miss_is_the_one_that_came_furthest(tmp_path: Path) -> None:
    body = (
        XYZ
        + """
        t = f32[4,8] tanh(x)
        p = f32[4,8] multiply(t, y)
        q = f32[4,8] subtract(p, z)
        u = f32[4,8] cosine(x)
        v = f32[4,8] multiply(u, y)
        w = f32[4,8] subtract(v, z)
        ROOT r = (f32[4,8], f32[4,8]) tuple(q, w)
    """
    )
    found = find(tmp_path, body, "tanh(exponential(a)) * b - c")
    (miss,) = found.misses.values()
    assert (miss.matched, miss.node.name, miss.why) == (3, "x", "%x is parameter, not exponential")


def test_too_many_ways_end(tmp_path: Path) -> None:
    """Sixty-three commutative products of one value: the attempt gives up long before it has tried all orders."""
    body = "x0 = f32[4] parameter(0)\n y = f32[4] parameter(1)\n"
    body += "\n".join(f"x{i + 1} = f32[4] multiply(x{i}, y)" for i in range(30)) + "\nROOT r = f32[4] add(x30, y)"
    expression = "x"
    for i in range(30):
        expression = f"c{i} * ({expression})" if i % 2 else f"({expression}) * c{i}"
    match = expression + " + tanh(z)"
    assert not find(tmp_path, body, match).matches
