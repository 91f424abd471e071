"""Weight-only quantized matmul under an ISA cap: prints the arithmetic, then wrong results."""

from __future__ import annotations

import itertools

import jax
from quantized_matmul_calls import GROUPED, WEIGHTS, quantized_matmul, wrong

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import registration

MOST_GROUPS = 20


def main() -> None:
    jax.devices("cpu")
    registration.register()
    planned = quantized_matmul(1, 8, 8).call.planned()
    assert not isinstance(planned, Refusal), planned
    print(planned.implementation)
    sizes = itertools.product((1, 2, 5, 8, 17), (1, 9, 70, 300), (1, 7, 33, 130, 1100))
    for (rows, depth, columns), by_column, kind in itertools.product(sizes, (False, True), WEIGHTS):
        products = [quantized_matmul(rows, depth, columns, by_column=by_column, kind=kind)]
        if kind in GROUPED:
            products.append(quantized_matmul(40 + rows, depth, columns, by_column=by_column, kind=kind, dtype="bf16"))
            scaled = quantized_matmul(rows, 48 * depth, columns, by_column=by_column, kind=kind, groups=depth)
            products += [scaled] if depth < MOST_GROUPS else []
        for product in products:
            found = wrong(product.call.run(), product.expected, product.magnitude)
            if found:
                print(product.call.spec, found)


if __name__ == "__main__":
    main()
