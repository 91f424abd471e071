"""Weight-only quantized matmul under an ISA cap: prints its arithmetic and that of integers, then wrong results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jax
import numpy as np
from calls import run_together
from quantized_matmul_calls import (
    GROUPED,
    WEIGHTS,
    QuantizedMatmulCall,
    quantized_matmul,
    with_rounded_source,
    with_whole_numbers,
    wrong,
)

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import registration

MOST_GROUPS = 20


def main() -> None:
    jax.devices("cpu")
    registration.register()
    for product in (quantized_matmul(1, 8, 8), with_rounded_source(quantized_matmul(1, 8, 8), 8)):
        planned = product.call.planned()
        assert not isinstance(planned, Refusal), planned
        print(planned.implementation)
    check_floats()
    check_integers()


def check_floats() -> None:
    """Sums of f32."""
    sizes = itertools.product((1, 2, 5, 8, 17), (1, 9, 70, 300), (1, 7, 33, 130, 1100))
    for rows, depth, columns in sizes:
        products = list(products_of(rows, depth, columns))
        results = run_together([product.call for product in products])
        for product, result in zip(products, results, strict=True):
            found = wrong(result, product.expected, product.magnitude)
            if found:
                print(product.call.spec, found)


def products_of(rows: int, depth: int, columns: int) -> Iterator[QuantizedMatmulCall]:
    for by_column, kind in itertools.product((False, True), WEIGHTS):
        yield quantized_matmul(rows, depth, columns, by_column=by_column, kind=kind)
        if kind in GROUPED:
            yield quantized_matmul(40 + rows, depth, columns, by_column=by_column, kind=kind, dtype="bf16")
            if depth < MOST_GROUPS:
                yield quantized_matmul(rows, 48 * depth, columns, by_column=by_column, kind=kind, groups=depth)


def check_integers() -> None:
    """Sums of integers: those of whole numbers are exact."""
    sizes = itertools.product((1, 5, 13, 26), ((1, 1), (1, 66), (7, 4), (3, 64), (40, 80)), (1, 16, 33, 130))
    for (rows, (groups, group), columns), by_column, kind in itertools.product(sizes, (False, True), GROUPED):
        if kind == "s4" and group % 2:
            continue
        shape = (rows, groups * group, columns)
        product = with_rounded_source(quantized_matmul(*shape, by_column=by_column, kind=kind), group)
        whole = with_whole_numbers(quantized_matmul(*shape, by_column=by_column, kind=kind), group)
        result, of_whole = run_together([product.call, whole.call])
        found = wrong(result, product.expected, product.magnitude)
        if not found and not np.array_equal(of_whole, whole.expected):
            found = "sums of integers are not exact"
        if found:
            print(product.call.spec, found)


if __name__ == "__main__":
    main()
