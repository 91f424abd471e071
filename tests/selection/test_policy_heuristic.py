"""Cost model at its thresholds: one case on each side of every number and of every condition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_dispatch.match.match import Match
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.cost_model import (
    COSTLY_ACTIVATIONS,
    SMALLEST_DENSE_CONVOLUTION,
    SMALLEST_DOT,
    SMALLEST_HALF_GEMV,
    SMALLEST_NATIVE_HALF_DOT,
    SMALLEST_POOLING,
    is_worth_dispatching,
)
from matching import only_match, table

MODERN = Machine("modern", frozenset(("avx512f", "avx512_bf16")), 8)
PLAIN = Machine("no bf16 arithmetic", frozenset(("avx2", "avx512f")), 8)
SINGLE = Machine("one thread", MODERN.features, 1)


def product(rows: int, inner: int, columns: int, *, kind: str = "f32", widened: bool = False, after: str = "") -> Match:
    """A match of an (rows, inner) · (inner, columns) product."""
    computed = "f32" if widened else kind
    result = f"{computed}[{rows},{columns}]{{1,0}}"
    operands = "x, w"
    converts = ""
    if widened:
        operands = "l, r"
        converts = f"""
  l = f32[{rows},{inner}]{{1,0}} convert(x)
  r = f32[{inner},{columns}]{{1,0}} convert(w)"""
    numbers = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    root = f"\n  ROOT last = {result} {after}(dot)" if after else ""
    return only_match(f"""
ENTRY main {{ x = {kind}[{rows},{inner}]{{1,0}} parameter(0)
  w = {kind}[{inner},{columns}]{{1,0}} parameter(1){converts}
  {"" if after else "ROOT "}dot = {result} dot({operands}), {numbers}{root} }}
""")


def convolution(channels: int) -> Match:
    """100 places, 10 channels in, `channels` out: 1000 · `channels` multiply-adds."""
    return only_match(f"""
ENTRY main {{ x = f32[1,10,10,10]{{3,2,1,0}} parameter(0)
  w = f32[1,1,10,{channels}]{{3,2,1,0}} parameter(1)
  ROOT conv = f32[1,10,10,{channels}]{{3,2,1,0}} convolution(x, w), window={{size=1x1}}, dim_labels=b01f_01io->b01f }}
""")


def pooling(channels: int, window: int) -> Match:
    """Windows of `window` by `window`, one element apart where they overlap, at 100 places."""
    step, size = (2, 20) if window == 2 else (1, 9 + window)
    return only_match(f"""
r {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }}
ENTRY main {{ x = f32[1,{size},{size},{channels}]{{3,2,1,0}} parameter(0)
  i = f32[] constant(-inf)
  ROOT pool = f32[1,10,10,{channels}]{{3,2,1,0}} reduce-window(x, i),
      window={{size=1x{window}x{window}x1 stride=1x{step}x{step}x1}}, to_apply=r }}
""")


def verdict(match: Match, machine: Machine = MODERN, implementation: str = "brgemm:avx512_core") -> tuple[bool, str]:
    worth, reason = is_worth_dispatching(match, implementation, machine)
    assert reason
    return worth, reason


# --- convolutions ------------------------------------------------------------------------------------------


def test_small_convolutions() -> None:
    channels = SMALLEST_DENSE_CONVOLUTION // 1000
    assert verdict(convolution(channels), implementation="brgconv:avx512_core") == (
        True,
        "oneDNN's brgconv:avx512_core convolutions beat XLA's",
    )
    assert verdict(convolution(channels - 1), implementation="brgconv:avx512_core") == (
        False,
        f"{SMALLEST_DENSE_CONVOLUTION - 1000:,} multiply-adds are too few to pay for a library call",
    )


def test_convolutions_that_onednn_unfolds() -> None:
    worth, reason = verdict(convolution(10_000), implementation="gemm:jit")
    assert not worth
    assert reason == "oneDNN would unfold this convolution into a matrix product (gemm:jit)"


# --- products ----------------------------------------------------------------------------------------------


def test_small_products() -> None:
    assert SMALLEST_DOT == 100**3
    assert verdict(product(100, 100, 100, after="tanh")) == (True, "tanh costs no pass of its own")
    worth, reason = verdict(product(100, 99, 100, after="tanh"))
    assert (worth, reason) == (False, "990,000 multiply-adds are too few to pay for a library call")


@pytest.mark.parametrize(
    ("rows", "columns", "kind", "worth"),
    [
        (128, 3072, "f32", False),
        (32, 3072, "f32", True),
        (128, 3088, "f32", True),
        (128, 4096, "f32", True),
        (128, 6144, "bf16", True),
    ],
)
def test_weights_whose_rows_share_cache_lines(rows: int, columns: int, kind: str, worth: bool) -> None:
    taken, reason = verdict(product(rows, 768, columns, kind=kind, after="tanh"))
    assert taken == worth
    assert taken or "share lines of the first cache" in reason


@pytest.mark.parametrize(
    ("after", "worth"), [("tanh", True), ("logistic", True), ("exponential", True), ("abs", False)]
)
def test_what_follows(after: str, worth: bool) -> None:
    assert verdict(product(100, 100, 100, after=after))[0] == worth


def test_costly_activations_are_names_of_onednn() -> None:
    """A misspelt one would never be found."""
    known = {activation.onednn.algorithm for activation in table().activations}
    assert known >= COSTLY_ACTIVATIONS


def test_f32_products_alone_are_xlas() -> None:
    assert verdict(product(200, 200, 200)) == (
        False,
        "XLA's own f32 product is as fast, and what follows it is cheap",
    )


@pytest.mark.parametrize(
    ("match", "machine", "worth"),
    [
        (product(200, 200, 200), MODERN, True),
        (product(200, 200, 200, kind="bf16"), MODERN, True),
        (product(200, 200, 200, kind="bf16"), PLAIN, False),
        (product(50, 50, 50), MODERN, False),
        (product(1, 2000, 1000), MODERN, False),
    ],
    ids=["f32", "bf16", "no bf16 arithmetic", "small", "one row"],
)
def test_products_of_prepacked_weights(match: Match, machine: Machine, worth: bool) -> None:
    assert match.anchor.weights is not None
    fused = replace(match.fused, static=frozenset((match.anchor.weights.node,)))
    found, why = verdict(match.with_epilogue(fused), machine)
    assert found == worth
    assert ("packed before the first call" in why) == worth


def test_a_row_times_transposed_weights() -> None:
    def row(columns_first: str) -> Match:
        return only_match(f"""
ENTRY main {{ x = f32[1,1000]{{1,0}} parameter(0)
  w = f32[1000,1000]{{{columns_first}}} parameter(1)
  ROOT dot = f32[1,1000]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
""")

    assert verdict(row("0,1")) == (True, "XLA reads transposed weights with strides; oneDNN is 10 times faster")
    assert not verdict(row("1,0"))[0]


def test_f32_vectors_do_not_pay_for_their_activation() -> None:
    assert not verdict(product(1, 1000, 1000, after="tanh"))[0]


# --- half precision ----------------------------------------------------------------------------------------


def test_native_half_products() -> None:
    assert SMALLEST_NATIVE_HALF_DOT == 4 * 100**3
    assert verdict(product(100, 399, 100, kind="bf16", after="tanh")) == (
        False,
        "XLA's own bf16 product is as fast at 3,990,000 multiply-adds",
    )
    assert verdict(product(100, 400, 100, kind="bf16", after="tanh")) == (True, "tanh costs no pass of its own")
    assert verdict(product(100, 400, 100, kind="bf16")) == (
        False,
        "XLA's own bf16 product is as fast, and what follows it is cheap",
    )


def test_widened_half_products() -> None:
    match = product(100, 100, 100, kind="bf16", widened=True)
    assert verdict(match) == (True, "XLA widens these bf16 operands to f32 in passes of their own")


@pytest.mark.parametrize(("rows", "columns"), [(1, 1000), (1000, 1)])
def test_half_vectors(rows: int, columns: int) -> None:
    worth, reason = verdict(product(rows, 1000, columns, kind="bf16"))
    assert (worth, reason) == (True, "bf16 matrix-vector products are 1.5 to 20 times faster in oneDNN")


@pytest.mark.parametrize("widened", [False, True])
def test_small_half_vectors(widened: bool) -> None:
    """Those of a key or a value of a layer, of which a language model's step has dozens."""
    assert SMALLEST_HALF_GEMV == 256**2
    assert verdict(product(1, 256, 256, kind="bf16", widened=widened))[0]
    worth, reason = verdict(product(1, 256, 255, kind="bf16", widened=widened))
    assert (worth, reason) == (False, "65,280 multiply-adds are too few to pay for a library call")
    assert not verdict(product(1, 256, 256))[0], "f32 is as fast in XLA"


@pytest.mark.parametrize("widened", [False, True])
@pytest.mark.parametrize("rows", [1, 100])
def test_half_products_without_half_arithmetic(rows: int, widened: bool) -> None:
    match = product(rows, 1000, 1000, kind="bf16", widened=widened, after="tanh")
    assert verdict(match, PLAIN) == (False, "this CPU has no bf16 arithmetic: XLA's f32 product is as good")


def test_f32_is_the_same_without_half_arithmetic() -> None:
    for match in (product(100, 100, 100, after="tanh"), product(100, 100, 100), convolution(1000)):
        assert verdict(match, PLAIN) == verdict(match, MODERN)


def test_the_cost_model_does_not_depend_on_threads() -> None:
    for match in (product(100, 100, 100, after="tanh"), product(100, 400, 100, kind="bf16"), convolution(100)):
        assert verdict(match, SINGLE) == verdict(match, MODERN)


# --- poolings ----------------------------------------------------------------------------------------------


def test_poolings_whose_windows_overlap_pay_from_a_size_on():
    enough = -(-SMALLEST_POOLING // 1600)
    assert not verdict(pooling(enough - 1, 4), implementation="jit:avx512_core")[0]
    assert verdict(pooling(enough, 4), implementation="jit:avx512_core")[0]


def test_windows_side_by_side_stay_with_xla():
    worth, reason = verdict(pooling(10_000, 2), implementation="jit:avx512_core")
    assert not worth
    assert "hardly overlap" in reason


@pytest.mark.parametrize(("columns", "worth"), [(999, False), (1000, True)])
@pytest.mark.parametrize("machine", [MODERN, PLAIN])
def test_products_of_integers_need_no_arithmetic_in_half_precision(machine: Machine, columns: int, worth: bool) -> None:
    match = only_match(f"""
ENTRY main {{ x = s8[10,100]{{1,0}} parameter(0)
  w = s8[100,{columns}]{{1,0}} parameter(1)
  dot = s32[10,{columns}]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT y = f32[10,{columns}]{{1,0}} convert(dot) }}
""")
    assert verdict(match, machine)[0] == worth
