"""The list of cases: it covers the shipped table, and every pattern of it computes what its name says."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.bench.cases import CASES, choose, make_case, small_case
from hlo_dispatch.bench.operations import OPERATIONS
from hlo_dispatch.bench.pattern import CaseError, read_pattern
from hlo_dispatch.pattern import load_tables

PATTERNS = tuple(dict.fromkeys(case.pattern.name for case in CASES))
TABLE = load_tables()
ACTIVATIONS = {activation.name for activation in TABLE.activations}
# Glue ops, only dispatched between other calls: alone there is nothing to time.
BETWEEN = frozenset(("concatenation", "rectifying", "scaling", "whole_window"))
# A case has one floating-point type for all operands, and a convolution's is no f64; these have benches of their own:
# bench.few_rows, bench.quantized and bench.public.
OF_OTHER_TYPES = frozenset(
    ("double_convolution", "narrow_product", "integer_convolution", "integer_product", "wrapping_product")
)
# `bench everyday distances` and `reductions` time them.
OF_EVERYDAY = frozenset(("row_norms", "square_sums", "squared_distances", "vector_sum"))
# How a report writes a binary of the table.
SIGNS = {"add": "+", "subtract": "-", "multiply": "·", "divide": "/", "maximum": "max", "minimum": "min"}


def table_entries() -> set[str]:
    binaries = {binary.name for binary in TABLE.binaries.values()}
    # jnp.linalg.qr calls it together with qr. A sparse matrix's operands are those of several types (bench.public), and
    # `bench everyday` times the rest among counting, indexing and sampling.
    others = {"bincount", "gathered_sums", "householder_product", "searchsorted", "sparse_product", "threefry2x32"}
    routines = {routine.name for routine in TABLE.routines} - others
    return (
        ACTIVATIONS
        | binaries
        | (set(TABLE.anchors) - BETWEEN - OF_OTHER_TYPES)
        | {pattern.name for pattern in TABLE.patterns} - OF_EVERYDAY
        | routines
    )


def test_every_entry_of_the_table_has_a_case() -> None:
    covered = {entry for case in CASES for entry in case.pattern.entries}
    assert table_entries() - covered == set()
    assert covered - table_entries() == set()


def test_names_are_unique_and_can_be_typed_back() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        again = make_case(case.pattern.name, case.shape_text, case.dtype, case.layout)
        assert again.name == case.name
        assert case.work > 0
        assert case.bytes_moved > 0


@pytest.mark.parametrize("name", [name for name in PATTERNS if read_pattern(name).entries])
def test_the_kernel_takes_every_step(name: str) -> None:
    from hlo_dispatch.bench import in_jax

    case = small_case(name)
    operands = in_jax.arguments(case)
    with hlo_dispatch.enabled(policy="always"):
        report = hlo_dispatch.explain(in_jax.function(case), *operands)
    formulas = " ".join(region.formula for region in report.dispatched)
    assert formulas, [region.reason for region in report.left]
    missing = [step.name for step in case.pattern.steps if not is_said(step.entry, formulas)]
    assert not missing, formulas


def is_said(entry: str, formulas: str) -> bool:
    # A division by a small vector becomes a product with its inverse, a square a power.
    others = {"divide": ("·",), "square": ("pow",)}.get(entry, ())
    return any(word in formulas for word in (SIGNS.get(entry, entry), *others))


@pytest.mark.parametrize("name", PATTERNS)
def test_pytorch_computes_the_same(name: str) -> None:
    pytest.importorskip("torch")
    import jax

    from hlo_dispatch.bench import in_jax, in_torch

    case = small_case(name)
    operands = in_jax.arguments(case)
    ours = jax.jit(in_jax.function(case))(*operands)
    theirs = in_torch.function(case)(*in_torch.arguments(case, operands))
    if case.pattern.operation.signs_differ or isinstance(ours, tuple | list):
        return
    assert ours.shape == case.result
    np.testing.assert_allclose(in_torch.result_in_order(case, theirs), ours, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["conv_bias_relu", "depthwise_conv_bias_clip", "max_pool", "conv_transpose_bias_relu"])
def test_channels_first_is_the_same_function(name: str) -> None:
    from hlo_dispatch.bench import in_jax

    last = small_case(name)
    first = make_case(name, last.shape_text, layout="channels-first")
    operands = in_jax.arguments(last)
    expected = np.asarray(in_jax.function(last)(*operands))
    turn = {"source": lambda x: np.moveaxis(x, -1, 1), "weights": lambda x: np.moveaxis(x, (-1, -2), (0, 1))}
    turned = [turn.get(role, np.asarray)(value) for role, value in zip(last.operands(), operands, strict=True)]
    assert [value.shape for value in turned] == list(first.operands().values())
    result = np.asarray(in_jax.function(first)(*turned))
    assert result.shape == first.result
    np.testing.assert_allclose(np.moveaxis(result, 1, -1), expected, rtol=1e-5, atol=1e-5)


def test_work_is_what_a_model_card_says() -> None:
    # 2 · 56² · 64 · 64 · 9, and one operation for each of two steps on each result
    case = make_case("conv_bias_relu", "n=1,c=64,h=56,w=56,k=64,r=3")
    assert case.work == 2 * 56**2 * 64 * 64 * 9 + 2 * 56**2 * 64
    assert case.bytes_moved == 4 * (2 * 56**2 * 64 + 9 * 64 * 64 + 64)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("convolution", "n=1"), "unknown pattern 'convolution'"),
        (("conv_bais", "n=1"), "not 'bais'"),
        (("conv", "n=1,c=2,h=3,w=3,k=2"), "lacks r"),
        (("conv", "n=1,c=2,h=3,w=3,k=2,r=3,q=1"), "no 'q'"),
        (("conv", "n=1,c=2,h=3,w=3,k=2,r=-3"), "whole number"),
        (("conv", "n=1,c=2,h=3,w=3,k=2,r=3,r=3"), "given twice"),
        (("conv", "n=1,c=3,h=3,w=3,k=2,r=3,groups=2"), "groups=2"),
        (("max_pool", "n=1,c=3,h=3,w=3,r=5"), "larger"),
        (("conv", "n=1,c=2,h=3,w=3,k=2,r=3", "f64"), "no element type 'f64'"),
        (("matmul", "m=1,k=2,n=3", "f32", "channels-first"), "no channels"),
    ],
)
def test_what_there_is_not_is_said(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(CaseError, match=said):
        make_case(*arguments)


def test_choosing() -> None:
    assert {case.pattern.name for case in choose(["conv_bias_mish"])} == {"conv_bias_mish"}
    assert all("ci" in case.tags for case in choose(tag="ci"))
    assert [case.dtype for case in choose(["matmul"], shape="m=2,k=2,n=2", dtypes=["bf16", "f32"])] == ["bf16", "f32"]
    for wrong in (
        lambda: choose(["conv_relu"]),
        lambda: choose(tag="fast"),
        lambda: choose(shape="n=1"),
        lambda: choose(dtypes=["f8"]),
        lambda: choose(["conv_bias_mish"], dtypes=["c64"]),
    ):
        with pytest.raises(CaseError):
            wrong()


def test_every_operation_has_a_case() -> None:
    assert {case.pattern.operation.name for case in CASES} == set(OPERATIONS)
