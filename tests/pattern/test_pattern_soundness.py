"""Whatever is recognised is right: random functions, checked at points the recogniser never saw."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_dispatch.pattern import TOLERANCES, Recogniser, Table
from hlo_dispatch.pattern.agreement import ErrorMeasure
from hlo_dispatch.pattern.formula import parse

constants = st.floats(-40, 40, width=32).map(lambda v: float(np.float32(v)))
leaves = st.one_of(st.just("x"), st.just("x"), st.sampled_from(["0", "1", "0.5", "6", "2"]), constants.map(repr))
UNARY = ("abs", "exp", "log", "sqrt", "tanh", "sigmoid", "softplus", "round", "expm1", "sign", "floor", "-")


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    unary = st.builds("{}({})".format, st.sampled_from(UNARY), inner)
    binary = st.builds("({1} {0} {2})".format, st.sampled_from("+-*/"), inner, inner)
    limit = st.builds("{}({}, {})".format, st.sampled_from(("max", "min")), inner, inner)
    select = st.builds("where({} > {}, {}, {})".format, inner, inner, inner, inner)
    return st.one_of(unary, binary, binary, limit, limit, select)


expressions = st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=800, deadline=None)
@given(text=expressions, dtype=st.sampled_from(sorted(TOLERANCES)))
def test_what_is_recognised_is_right_everywhere(table: Table, recogniser: Recogniser, text: str, dtype: str) -> None:
    region = parse(text, ["x"])
    numbers = [float(token) for token in re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", text)]
    probes = recogniser.probes(numbers)
    values = np.array(np.broadcast_to(region.evaluate({"x": probes}), probes.shape), dtype=np.float64)
    found = recogniser.recognise(probes, values, TOLERANCES[dtype])
    if found is None:
        return
    random = np.random.default_rng(0)
    unseen = np.concatenate([random.uniform(-90, 90, 4000), random.normal(0, 3, 4000), random.uniform(-1, 1, 1000)])
    if found.is_identity:
        expected = unseen
    else:
        expected = table.activation(found.name).formula.evaluate({"x": unseen, **found.parameters})
    got = np.array(np.broadcast_to(region.evaluate({"x": unseen}), unseen.shape), dtype=np.float64)
    errors = ErrorMeasure.at(unseen).errors(got, expected)
    worst = int(errors.argmax())
    # A kink that constants of the region combine to may lie between probes: allow a sliver, not a function.
    assert (errors > 2 * TOLERANCES[dtype]).mean() < 0.01, (found.describe(), unseen[worst], errors[worst])
