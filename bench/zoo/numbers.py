"""Dispatched against stock, on the small variants of the zoo's models, in float32 and bfloat16."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_dispatch.bench.zoo.fill import fill
from hlo_dispatch.bench.zoo.models import ZOO
from hlo_dispatch.demo.compare import compile_dispatched, compile_stock
from hlo_dispatch.demo.models import Workload

FLOAT32 = 1e-4
"""The promise: rounding grows with depth, and no further than this over the largest output."""
MOVED = 1e-6
"""Where moving every weight by this much moves stock XLA's outputs more than that, we may be as far off: the
gradient of a relu jumps where its input is almost zero."""
NOTHING = 1e-5
"""Outputs this small beside the largest are rounding (the gradient of a key's bias is zero on paper)."""
BFLOAT16 = 1.5
"""How much farther from the float32 result a dispatched bfloat16 model may be than the stock one."""
INPUTS = 8
"""How many inputs bfloat16 is judged on: an output of one number (CLIP's similarity, a cosine near zero) is as far off
by chance as it is by rounding."""
VARIES = 0.01
"""Two inputs have to differ in their outputs by this much, or the comparison would show nothing."""


@dataclass(frozen=True)
class Numbers:
    """One model's differences, each the largest over the largest value of the output."""

    dispatched: int
    """Regions that ran in a kernel."""
    varies: float
    """Between the outputs of two inputs."""
    float32: float
    """Dispatched from stock."""
    condition: float
    """Stock from stock with every weight moved a little."""
    bfloat16: tuple[float, float, float]
    """Dispatched from stock; stock from float32; dispatched from float32."""

    @property
    def good(self) -> bool:
        """Whether all three promises hold."""
        _, stock, dispatched = self.bfloat16
        exact = self.float32 <= max(FLOAT32, self.condition)
        return self.varies >= VARIES and exact and dispatched <= BFLOAT16 * stock


def workload(name: str, dtype: str) -> tuple[Workload, list[Any]]:
    """The small variant with random weights, the same numbers in every type, and other inputs for it."""
    model = ZOO[name]
    function, shapes = model.built(**model.small, dtype=dtype)
    *weights, inputs = shapes
    arguments = (*(fill(tree, number, model.gain) for number, tree in enumerate(weights, 10)), fill(inputs, 1))
    others = [fill(inputs, seed) for seed in range(2, INPUTS + 1)]
    return Workload(name, f"{name}, small, {dtype}", function, arguments), others


def numbers(name: str) -> Numbers:
    """Compile and run both ways in both types."""
    stock, dispatched, regions = {}, {}, 0
    other, condition = None, 0.0
    for dtype in ("float32", "bfloat16"):
        model, others = workload(name, dtype)
        compiled = compile_stock(model)
        stock[dtype] = _outputs(compiled, model, others)
        if dtype == "float32":
            other = stock[dtype][1]
            for seed in range(3):
                moved = compiled.executable(*(_moved(tree, seed) for tree in model.arguments))
                condition = max(condition, _difference(stock[dtype][0], moved))
        compiled = compile_dispatched(model, policy="always")
        regions = max(regions, sum(len(report.dispatched) for report in compiled.reports))
        dispatched[dtype] = _outputs(compiled, model, others)
    half = (
        _difference(_stacked(stock["bfloat16"]), _stacked(dispatched["bfloat16"])),
        _difference(_stacked(stock["float32"]), _stacked(stock["bfloat16"])),
        _difference(_stacked(stock["float32"]), _stacked(dispatched["bfloat16"])),
    )
    varies = _difference(stock["float32"][0], other)
    exact = _difference(stock["float32"][0], dispatched["float32"][0])
    return Numbers(regions, varies, exact, condition, half)


def _outputs(compiled: Any, model: Workload, others: list[Any]) -> list[Any]:
    """For the model's own inputs, then for the others."""
    return [compiled(), *(compiled.executable(*model.arguments[:-1], inputs) for inputs in others)]


def _stacked(outputs: list[Any]) -> Any:
    """One tree of them all: each leaf with all its values."""
    import jax

    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float64) for leaf in leaves]), *outputs)


def _difference(expected: Any, actual: Any) -> float:
    """The largest absolute difference over the largest expected value, worst leaf; NaN if NaNs disagree."""
    import jax

    pairs = [
        (np.asarray(left, np.float64), np.asarray(right, np.float64))
        for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True)
    ]
    largest = max(np.max(np.abs(left)) for left, _ in pairs)
    leaves = [np.max(np.abs(a - b)) / np.maximum(np.max(np.abs(a)), NOTHING * largest) for a, b in pairs]
    return float(np.max(leaves))


def _moved(arguments: Any, seed: int) -> Any:
    """The same arguments, each float32 element a little up or down."""
    import jax

    generator = np.random.default_rng(seed)

    def moved(leaf: Any) -> Any:
        if leaf.dtype != np.float32:
            return leaf
        return leaf * (1 + MOVED * generator.choice((-1.0, 1.0), leaf.shape)).astype("float32")

    return jax.tree.map(moved, arguments)


def compare(name: str) -> bool:
    """Print one model's numbers; whether they are good."""
    found = numbers(name)
    against, stock, dispatched = found.bfloat16
    print(
        f"{name}: {'good' if found.good else 'WRONG'}; {found.dispatched} regions, outputs vary by {found.varies:.3f}; "
        f"float32 {found.float32:.1e} (condition {found.condition:.1e}); bfloat16 {against:.1e} from stock, "
        f"{dispatched:.1e} from float32 where stock is {stock:.1e}",
        flush=True,
    )
    return found.good
