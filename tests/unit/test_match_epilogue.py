"""Epilogue chains behind a product: their steps, post-ops, and the sentence with which they end."""

from __future__ import annotations

import pytest

from hlo_dispatch.match.match import Match
from matching import flattened, matches, node, only_match, table

F = "f32[4,16]{1,0}"
HEAD = f"""
ENTRY main {{ x = f32[4,8]{{1,0}} parameter(0)
  w = f32[8,16]{{1,0}} parameter(1)
  b = f32[16]{{0}} parameter(2)
  r = {F} parameter(3)
  bias = {F} broadcast(b), dimensions={{1}}
  zero = f32[] constant(0)
  zeros = {F} broadcast(zero), dimensions={{}}
  dot = {F} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
"""


def after_dot(body: str) -> str:
    return f"{HEAD}{body} }}"


def chain(body: str) -> Match:
    return only_match(after_dot(body))


def steps(match: Match) -> list[str]:
    return [step.result.name for step in match.fused.steps]


def stop(match: Match) -> tuple[str, str]:
    return match.fused.chain.stopped_at.name if match.fused.chain.stopped_at else "", match.fused.chain.why


# --- where chains stop -------------------------------------------------------------------------------------


def test_a_value_used_twice_is_the_last() -> None:
    match = chain(f"""
  add = {F} add(dot, bias)
  tanh = {F} tanh(add)
  twice = {F} multiply(add, r)
  ROOT t = ({F}, {F}) tuple(tanh, twice)
""")
    assert steps(match) == ["add"]
    assert stop(match) == ("add", "the value is used more than once")


def test_paths_that_meet_again_are_one_use() -> None:
    match = chain(f"""
  add = {F} add(dot, bias)
  logistic = {F} logistic(add)
  swish = {F} multiply(logistic, add)
  ROOT sum = {F} add(swish, r)
""")
    assert steps(match) == ["add", "swish", "sum"]


def test_the_result_of_the_computation_is_the_last() -> None:
    match = chain(f"ROOT add = {F} add(dot, bias)")
    assert stop(match) == ("", "the value is needed in memory")


def test_a_value_that_another_call_reads_is_the_last() -> None:
    graph = flattened(after_dot(f"add = {F} add(dot, bias)\n ROOT tanh = {F} tanh(add)"))
    (match,) = matches(graph, needed={node(graph, "add")}).values()
    assert steps(match) == ["add"]
    assert stop(match) == ("", "the value is needed in memory")


def test_an_unused_product_is_alone() -> None:
    assert steps(chain(f"ROOT t = {F} tanh(r)")) == []


def test_what_another_match_has_taken_is_not_taken_again() -> None:
    graph = flattened(after_dot(f"add = {F} add(dot, bias)\n ROOT sum = {F} add(add, r)"))
    (match,) = matches(graph, taken={node(graph, "sum")}).values()
    assert steps(match) == ["add"]
    assert stop(match) == ("sum", "another match has taken this instruction")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"ROOT stop = {F} atan2(dot, r)", "atan2 is neither an activation of the table nor a binary epilogue"),
        ("ROOT stop = f32[4,8]{1,0} slice(dot), slice={[0:4], [0:16:2]}", "takes single columns"),
        (f"n = {F} add(dot, r)\n ROOT stop = f32[4,8]{{1,0}} slice(n), slice={{[0:4], [0:8]}}", "keeps a part of the"),
        (f"ROOT stop = {F} sine(dot)", "activation of the table"),
        (f"n = {F} add(dot, r)\n ROOT stop = {F} subtract(n, n)", ""),
        ("ROOT stop = f64[4,16]{1,0} convert(dot)", "convert is neither an activation of the table"),
        (f"ROOT stop = {F} copy(dot)", "kept-copy is neither an activation of the table nor a binary epilogue"),
        ("ROOT stop = f32[16,4]{1,0} transpose(dot), dimensions={1,0}", "transpose is neither an activation"),
    ],
    ids=["atan2", "columns apart", "slice behind a step", "sine", "itself", "f64", "copy", "rows apart"],
)
def test_what_is_no_step(body: str, why: str) -> None:
    match = chain(body)
    assert stop(match)[0] == "stop"
    assert why in match.fused.chain.why


def test_a_primitive_takes_so_many_post_ops() -> None:
    def adds(count: int) -> Match:
        body = "".join(f"r{n + 1} = {F} add(r{n}, p{n})\n" for n in range(count))
        parameters = "".join(f"p{n} = {F} parameter({n + 4})\n" for n in range(count))
        return chain(f"{parameters} r0 = {F} add(dot, r)\n{body} ROOT end = {F} sine(r{count})")

    longest = table().anchors["dot"].longest_chain
    assert longest == 32
    assert len(adds(longest - 1).fused.steps) == longest
    longer = adds(longest)
    assert len(longer.fused.steps) == longest
    assert stop(longer) == (f"r{longest}", f"dot takes {longest} post-ops")


# --- whose a residual is -----------------------------------------------------------------------------------

RESIDUAL = f"""
ENTRY main {{ x = f32[4,8]{{1,0}} parameter(0)
  w = f32[8,16]{{1,0}} parameter(1)
  v = f32[8,16]{{1,0}} parameter(2)
  early = {F} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  tanh = {F} tanh(early)
  late = {F} dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sum = {F} add(tanh, late)
  ROOT end = {F} negate(sum) }}
"""


def test_a_residual_is_the_later_products() -> None:
    found = matches(flattened(RESIDUAL))
    assert list(found) == ["late", "early"]
    assert steps(found["late"]) == ["sum", "end"]
    assert [view.node.name for view in found["late"].operands.values()] == ["x", "v", "tanh"]
    assert steps(found["early"]) == ["tanh"]
    assert stop(found["early"]) == ("", "the value is needed in memory")


# Both products' results go through one fusion; %tanh has no place in memory of its own.
FUSED_AWAY = """
fused { a = f32[256,256]{1,0} parameter(0)
  c = f32[256,256]{1,0} parameter(1)
  tanh = f32[256,256]{1,0} tanh(a)
  sum = f32[256,256]{1,0} add(tanh, c)
  ROOT end = f32[256,256]{1,0} negate(sum) }
ENTRY main { x = f32[256,256]{1,0} parameter(0)
  y = f32[256,256]{1,0} parameter(1)
  early = f32[256,256]{1,0} EARLY
  late = f32[256,256]{1,0} dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT fusion = f32[256,256]{1,0} fusion(early, late), kind=kLoop, calls=fused }
"""


def test_a_large_value_fused_away_is_read_where_another_product_leaves_it() -> None:
    product = "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    found = matches(flattened(FUSED_AWAY.replace("EARLY", product)))
    assert steps(found["late"]) == ["sum", "end"]
    assert steps(found["early"]) == ["tanh"]


def test_a_large_value_fused_away_is_not_written_for_the_kernel() -> None:
    match = only_match(FUSED_AWAY.replace("EARLY", "subtract(x, y)"))
    assert steps(match) == []
    assert stop(match)[1] == "the other operand is not in memory, and writing it there would cost more than it saves"


def test_a_small_value_fused_away_is() -> None:
    match = only_match(FUSED_AWAY.replace("EARLY", "subtract(x, y)").replace("256", "128"))
    assert steps(match) == ["sum", "end"]


# --- steps that cost nothing -------------------------------------------------------------------------------


def test_a_pair_of_converts_is_free() -> None:
    """XLA rounds to bf16 after every step; the kernel rounds once."""
    match = chain(f"""
  narrow = bf16[4,16]{{1,0}} convert(dot)
  wide = {F} convert(narrow)
  add = {F} add(wide, bias)
  ROOT result = bf16[4,16]{{1,0}} convert(add)
""")
    assert steps(match) == ["narrow", "wide", "add", "result"]
    assert [len(step.post_ops) for step in match.fused.steps] == [0, 0, 1, 0]
    assert match.attributes()["dst_type"] == "bf16"
    assert match.attributes()["bias_type"] == "f32"


def test_a_bitcast_is_free_and_what_follows_is_read_in_the_results_dimensions() -> None:
    match = chain("""
  three = f32[2,2,16]{2,1,0} bitcast(dot)
  along = f32[2,2,16]{2,1,0} broadcast(b), dimensions={2}
  add = f32[2,2,16]{2,1,0} add(three, along)
  other = f32[2,2,16]{2,1,0} bitcast(r)
  ROOT sum = f32[2,2,16]{2,1,0} add(add, other)
""")
    assert steps(match) == ["three", "add", "sum"]
    assert match.fused.bias is not None
    attributes = match.attributes()
    assert (attributes["dst_dims"], attributes["dst_strides"]) == ([4, 16], [16, 1])
    assert attributes["post_op_0"]["dims"] == [4, 16]
    assert {role: view.node.name for role, view in match.operands.items()} == {
        "src": "x",
        "weights": "w",
        "bias": "b",
        "post_op_0": "r",
    }


def test_a_transposed_result_is_written_transposed() -> None:
    """What comes after it is stated in the product's own dimensions."""
    match = only_match("""
ENTRY main { x = f32[3,4,8]{2,1,0} parameter(0)
  w = f32[3,8,16]{2,1,0} parameter(1)
  scale = f32[4,1,16]{2,1,0} parameter(2)
  line = f32[4,16]{1,0} bitcast(scale)
  dot = f32[3,4,16]{2,1,0} dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
  turned = f32[4,3,16]{2,1,0} transpose(dot), dimensions={1,0,2}
  scales = f32[4,3,16]{2,1,0} broadcast(line), dimensions={0,2}
  ROOT scaled = f32[4,3,16]{2,1,0} multiply(turned, scales) }
""")
    assert steps(match) == ["turned", "scaled"]
    attributes = match.attributes()
    assert (attributes["dst_dims"], attributes["dst_strides"]) == ([3, 4, 16], [16, 48, 1])
    assert attributes["post_op_0"]["dims"] == [1, 4, 16]
    assert attributes["post_op_0"]["strides"][1:] == [16, 1]


# --- binary steps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"ROOT s = {F} subtract(dot, r)", [("binary", "sub", 0, 0)]),
        (f"ROOT s = {F} subtract(r, dot)", [("eltwise", "linear", -1, 0), ("binary", "add", 0, 0)]),
        (f"ROOT s = {F} divide(dot, r)", [("binary", "div", 0, 0)]),
        (f"ROOT s = {F} divide(r, dot)", [("eltwise", "pow", 1, -1), ("binary", "mul", 0, 0)]),
        (f"ROOT s = {F} maximum(r, dot)", [("binary", "max", 0, 0)]),
        (f"ROOT s = {F} multiply(r, dot)", [("binary", "mul", 0, 0)]),
    ],
)
def test_either_order_of_operands(body: str, expected: list) -> None:
    found = [(op.kind, op.algorithm, op.alpha, op.beta) for op in chain(body).fused.post_ops]
    assert found == expected


@pytest.mark.parametrize(("kind", "is_bias"), [("f32", True), ("bf16", True), ("f16", False)])
def test_a_bias_is_a_vector_along_the_channels(kind: str, is_bias: bool) -> None:
    """Widened or not; oneDNN takes no bias in f16 to a product in f32, so that is an add."""
    match = chain(f"""
  v = {kind}[16]{{0}} parameter(4)
  wide = f32[16]{{0}} convert(v)
  along = {F} broadcast(wide), dimensions={{1}}
  ROOT add = {F} add(along, dot)
""")
    assert (match.fused.bias is not None) == is_bias
    assert match.attributes().get("bias_type") == (kind if is_bias else None)
    assert [view.element_type for view in match.operands.values()] == ["f32", "f32", kind]


@pytest.mark.parametrize(
    "body",
    [
        f"ROOT s = {F} add(dot, r)",
        f"c = f32[4]{{0}} parameter(4)\n cs = {F} broadcast(c), dimensions={{0}}\n ROOT s = {F} add(dot, cs)",
        f"ROOT s = {F} multiply(dot, bias)",
        f"tanh = {F} tanh(dot)\n ROOT s = {F} add(tanh, bias)",
        f"c = f32[] parameter(4)\n cs = {F} broadcast(c), dimensions={{}}\n ROOT s = {F} add(dot, cs)",
    ],
    ids=["whole", "along the rows", "scale", "after an activation", "one number"],
)
def test_what_is_no_bias(body: str) -> None:
    match = chain(body)
    assert match.fused.bias is None
    assert match.fused.post_ops[-1].kind == "binary"


def test_one_number_that_is_no_constant_repeats_everywhere() -> None:
    match = chain(f"c = f32[] parameter(4)\n cs = {F} broadcast(c), dimensions={{}}\n ROOT s = {F} multiply(dot, cs)")
    assert match.attributes()["post_op_0"] == {
        "kind": "binary", "algorithm": "mul", "type": "f32", "dims": [1, 1], "strides": [1, 1],
    }  # fmt: skip


# --- shorter forms -----------------------------------------------------------------------------------------


def test_shortened_drops_one_post_op_and_what_only_served_it() -> None:
    match = chain(f"""
  add = {F} add(dot, bias)
  narrow = bf16[4,16]{{1,0}} convert(add)
  tanh = bf16[4,16]{{1,0}} tanh(narrow)
  sum = bf16[4,16]{{1,0}} negate(tanh)
  ROOT wide = {F} convert(sum)
""")
    forms = []
    shorter: Match | None = match
    while shorter is not None:
        forms.append([post_op.algorithm for step in shorter.fused.steps for post_op in step.post_ops])
        assert shorter.fused.step_count == len(shorter.fused.steps)
        shorter = shorter.shortened()
    assert forms[0] == ["add", "tanh", "linear"]
    assert forms[-1] == []
    assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)
    assert match.shortened() is not match


def test_the_bare_product_has_no_shorter_form() -> None:
    match = chain(f"ROOT sine = {F} sine(dot)")
    assert match.shortened() is None
    assert match.covered == (match.anchor.node,)
    assert match.output is match.anchor.node
