"""What is matched for a machine: whether wide products of quantized weights are left to units for matrices of bf16."""

from __future__ import annotations

import pytest

from hlo_dispatch.match.anchors.weight_only_quantized_matmul import MAX_ROWS
from hlo_dispatch.match.match import Match
from hlo_dispatch.process.machine import Machine
from matching import flattened, matches

PLAIN = Machine("server", frozenset(("avx2", "avx512f", "avx512_bf16")), 2)
TILES = Machine("server", PLAIN.features | {"amx_tile", "amx_bf16"}, 2)


def kind_on(machine: Machine, rows: int, source: str = "bf16") -> str:
    """The entry of a product of int8 weights."""
    graph = flattened(f"""ENTRY e {{
  x = {source}[{rows},64] parameter(0)
  w = s8[64,32] parameter(1)
  c = {source}[64,32] convert(w)
  ROOT y = {source}[{rows},32] dot(x, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}""")
    (match,) = matches(graph, machine=machine).values()
    assert isinstance(match, Match)
    return match.name


@pytest.mark.parametrize("rows", [1, MAX_ROWS, MAX_ROWS + 1])
def test_many_rows_of_bf16_are_for_units_of_matrices(rows: int) -> None:
    assert kind_on(PLAIN, rows) == "narrow_product"
    assert kind_on(TILES, rows) == ("narrow_product" if rows <= MAX_ROWS else "dot")
    assert kind_on(TILES, rows, "f32") == "narrow_product"
