"""Operations that a pattern's name begins with: their shapes, arithmetic and memory traffic.

Sizes are elements, work is floating-point operations (a multiplication and an addition are two). Neither knows
a framework; `in_jax.py` and `in_torch.py` have one function for each name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log2, prod

Sizes = Mapping[str, int]
Dimensions = tuple[int, ...]


@dataclass(frozen=True)
class BenchOperation:
    """One operation; its shape is given by named numbers."""

    name: str
    entry: str
    """The shipped table's anchor, pattern or routine that dispatches it; empty where there is none."""
    needed: tuple[str, ...]
    """The numbers that a shape must give."""
    defaults: Mapping[str, int]
    """Those it may give."""
    operands: Callable[[Sizes], dict[str, Dimensions]]
    """Dimensions of the operands, channels last."""
    result: Callable[[Sizes], Dimensions]
    work: Callable[[Sizes], float]
    spatial: int = 0
    """How many dimensions of space source and result have: these also exist channels first."""
    dtypes: tuple[str, ...] = ("f32", "bf16", "f16")
    signs_differ: bool = False
    """Whether the result is only determined up to signs (eigenvectors)."""
    small: Mapping[str, int] = field(default_factory=dict[str, int])
    """The smallest shape that has everything in it, for tests."""

    def sizes(self, given: Sizes) -> dict[str, int]:
        """All numbers of a shape, those by default included."""
        return dict(self.defaults) | dict(given)


def channels_first(dimensions: Dimensions) -> Dimensions:
    """(n, h, w, c) as (n, c, h, w)."""
    return (dimensions[0], dimensions[-1], *dimensions[1:-1])


def _space(z: Sizes, spatial: int) -> Dimensions:
    return tuple(z[name] for name in ("d", "h", "w")[3 - spatial :])


def padding(z: Sizes) -> int:
    """Zeros on either side of each dimension of space, so that stride 1 keeps the size of odd windows."""
    return z["dilation"] * (z["r"] - 1) // 2


def _moved(z: Sizes, spatial: int) -> Dimensions:
    reach = z["dilation"] * (z["r"] - 1) + 1
    return tuple((size + 2 * padding(z) - reach) // z["stride"] + 1 for size in _space(z, spatial))


def _convolution(spatial: int, given: str) -> BenchOperation:
    """`given`: what is computed: forward, weights_gradient or input_gradient."""

    def source(z: Sizes) -> Dimensions:
        return (z["n"], *_space(z, spatial), z["c"])

    def weights(z: Sizes) -> Dimensions:
        return (*(z["r"],) * spatial, z["c"] // z["groups"], z["k"])

    def result(z: Sizes) -> Dimensions:
        return (z["n"], *_moved(z, spatial), z["k"])

    def work(z: Sizes) -> float:
        return 2.0 * prod(result(z)) * prod(weights(z)[:-1])

    parts = {"source": source, "weights": weights, "result": result}
    missing = {"forward": "result", "weights_gradient": "weights", "input_gradient": "source"}[given]
    names = [name for name in parts if name != missing]
    stem = "conv" if spatial == 2 else f"conv{spatial}d"
    entry = {"forward": "convolution", "weights_gradient": "weights_gradient", "input_gradient": "convolution"}[given]
    space = ("d", "h", "w")[3 - spatial :]
    return BenchOperation(
        name=stem if given == "forward" else f"{stem}_{given}",
        entry=entry,
        needed=("n", "c", *space, "k", "r"),
        defaults={"stride": 1, "dilation": 1, "groups": 1},
        operands=lambda z: {name: parts[name](z) for name in names},
        result=parts[missing],
        work=work,
        spatial=spatial,
        small={"n": 1, "c": 8, "k": 16, "r": 3} | dict.fromkeys(space, 6),
    )


def _depthwise() -> BenchOperation:
    def moved(z: Sizes) -> Dimensions:
        return (z["n"], *_moved(z, 2), z["c"])

    return BenchOperation(
        name="depthwise_conv",
        entry="convolution",
        needed=("n", "c", "h", "w", "r"),
        defaults={"stride": 1, "dilation": 1},
        operands=lambda z: {
            "source": (z["n"], z["h"], z["w"], z["c"]),
            "weights": (z["r"], z["r"], 1, z["c"]),
        },
        result=moved,
        work=lambda z: 2.0 * prod(moved(z)) * z["r"] ** 2,
        spatial=2,
        small={"n": 1, "c": 16, "h": 6, "w": 6, "r": 3},
    )


def _transposed() -> BenchOperation:
    return BenchOperation(
        name="conv_transpose",
        entry="transposed_convolution",
        needed=("n", "c", "h", "w", "k", "r"),
        defaults={"stride": 2},
        operands=lambda z: {
            "source": (z["n"], z["h"], z["w"], z["c"]),
            "weights": (z["r"], z["r"], z["c"], z["k"]),
        },
        result=lambda z: (z["n"], z["h"] * z["stride"], z["w"] * z["stride"], z["k"]),
        work=lambda z: 2.0 * z["n"] * z["h"] * z["w"] * z["c"] * z["k"] * z["r"] ** 2,
        spatial=2,
        small={"n": 1, "c": 8, "h": 4, "w": 4, "k": 16, "r": 4},
    )


def _pooling(name: str) -> BenchOperation:
    def moved(z: Sizes) -> Dimensions:
        return (z["n"], *((size - z["r"]) // z["stride"] + 1 for size in (z["h"], z["w"])), z["c"])

    return BenchOperation(
        name=name,
        entry="pooling",
        needed=("n", "c", "h", "w", "r"),
        defaults={"stride": 2},
        operands=lambda z: {"source": (z["n"], z["h"], z["w"], z["c"])},
        result=moved,
        work=lambda z: float(prod(moved(z)) * z["r"] ** 2),
        spatial=2,
        small={"n": 1, "c": 16, "h": 8, "w": 8, "r": 2},
    )


def _matmul() -> BenchOperation:
    def batched(z: Sizes, *dimensions: int) -> Dimensions:
        return (z["b"], *dimensions) if z["b"] > 1 else dimensions

    return BenchOperation(
        name="matmul",
        entry="dot",
        needed=("m", "k", "n"),
        defaults={"b": 1, "transposed": 0},
        operands=lambda z: {
            "source": batched(z, z["m"], z["k"]),
            "weights": batched(z, *((z["n"], z["k"]) if z["transposed"] else (z["k"], z["n"]))),
        },
        result=lambda z: batched(z, z["m"], z["n"]),
        work=lambda z: 2.0 * z["b"] * z["m"] * z["k"] * z["n"],
        small={"m": 16, "k": 32, "n": 48},
    )


def _rows(
    name: str, operands: tuple[str, ...], work: float, entry: str = "", *, reduces: bool = False, keeps: int = 0
) -> BenchOperation:
    """Something done to each of m rows of n values, which may give one value, or so many; `operands` have n each."""
    return BenchOperation(
        name=name,
        entry=entry,
        needed=("m", "n"),
        defaults={},
        operands=lambda z: {"source": (z["m"], z["n"])} | {operand: (z["n"],) for operand in operands},
        result=lambda z: (z["m"],) if reduces else (z["m"], keeps or z["n"]),
        work=lambda z: work * z["m"] * z["n"],
        # XLA sums few longer rows in pieces, which is another program.
        small={"m": 8, "n": 24},
    )


def _attention() -> BenchOperation:
    def heads(z: Sizes, length: str) -> Dimensions:
        return (z["n"], z["heads"], z[length], z["d"])

    def seen(z: Sizes) -> float:
        """Of how many pairs of a query and a key there is a weight."""
        if not z["causal"]:
            return float(z["q"] * z["kv"])
        return float(sum(min(query + 1, z["kv"]) for query in range(z["q"])))

    return BenchOperation(
        name="attention",
        entry="dot",
        needed=("n", "heads", "q", "kv", "d"),
        # Causal: a query sees no key behind its own place.
        defaults={"causal": 0},
        operands=lambda z: {"query": heads(z, "q"), "key": heads(z, "kv"), "value": heads(z, "kv")},
        result=lambda z: heads(z, "q"),
        # two products, and about five operations for each weight of the softmax between them
        work=lambda z: z["n"] * z["heads"] * seen(z) * (4.0 * z["d"] + 5),
        small={"n": 1, "heads": 2, "q": 16, "kv": 16, "d": 32},
    )


def _square(
    name: str,
    work: Callable[[float, float], float],
    *,
    entry: str = "",
    columns: bool = False,
    dtypes: tuple[str, ...] = ("f32", "f64"),
    signs_differ: bool = False,
) -> BenchOperation:
    """b square matrices of size n, with m right-hand sides where it has `columns`; work(n, m) of one.

    `entry`: the table's routine, where it has another name.
    """

    def batched(z: Sizes, *dimensions: int) -> Dimensions:
        return (z["b"], *dimensions) if z["b"] > 1 else dimensions

    def operands(z: Sizes) -> dict[str, Dimensions]:
        matrix = {"matrix": batched(z, z["n"], z["n"])}
        return matrix | ({"right": batched(z, z["n"], z["m"])} if columns else {})

    return BenchOperation(
        name=name,
        entry=entry or name,
        needed=("n", "m") if columns else ("n",),
        defaults={"b": 1},
        operands=operands,
        result=lambda z: batched(z, z["n"], z["m"] if columns else z["n"]),
        work=lambda z: z["b"] * work(z["n"], z["m"] if columns else 0),
        dtypes=dtypes,
        signs_differ=signs_differ,
        small={"n": 16, "m": 4} if columns else {"n": 16},
    )


def _fourier(name: str, *sizes: str, real: bool = False) -> BenchOperation:
    """b transforms; the usual count, 5 n log2(n) for n complex values, half of it where they are real."""

    def work(z: Sizes) -> float:
        count = prod(z[size] for size in sizes)
        return z["b"] * (2.5 if real else 5.0) * count * log2(max(count, 2))

    def result(z: Sizes) -> Dimensions:
        last = z[sizes[-1]]
        return (z["b"], *(z[size] for size in sizes[:-1]), last // 2 + 1 if real else last)

    return BenchOperation(
        name=name,
        entry="fft",
        needed=sizes,
        defaults={"b": 1},
        operands=lambda z: {"source": (z["b"], *(z[size] for size in sizes))},
        result=result,
        work=work,
        dtypes=("f32",) if real else ("c64",),
        small=dict.fromkeys(sizes, 16),
    )


OPERATIONS: dict[str, BenchOperation] = {
    operation.name: operation
    for operation in (
        *(_convolution(spatial, "forward") for spatial in (1, 2, 3)),
        _convolution(2, "weights_gradient"),
        _convolution(2, "input_gradient"),
        _depthwise(),
        _transposed(),
        _pooling("max_pool"),
        _pooling("avg_pool"),
        _matmul(),
        _attention(),
        _rows("softmax", (), 5, "softmax"),
        _rows("log_softmax", (), 5, "log_softmax"),
        _rows("argmax", (), 1, "argmax", reduces=True),
        _rows("argmin", (), 1, "argmin", reduces=True),
        _rows("sort", (), 16, "sort"),
        _rows("argsort", (), 16, "sort_with_places"),
        _rows("top_k", (), 4, "top_k", keeps=20),
        _rows("cumsum", (), 1, "cumulative_sum"),
        _rows("cumprod", (), 1, "cumulative_product"),
        _rows("cummax", (), 1, "cumulative_maximum"),
        _rows("cummin", (), 1, "cumulative_minimum"),
        _rows("cumlogsumexp", (), 8, "cumulative_logsumexp"),
        _rows("layer_norm", ("scale", "bias"), 8, "layer_norm"),
        _rows("rms_norm", ("scale",), 5, "rms_norm"),
        _square("cholesky", lambda n, m: n**3 / 3),
        _square("triangular_solve", lambda n, m: n**2 * m, columns=True),
        # the factor, and what it takes to multiply its transpose, half of which is zeros
        _square("triangular_product", lambda n, m: n**3 / 3 + n**2 * m, columns=True),
        _square("product", lambda n, m: 8 * n**2 * m, columns=True, dtypes=("c64",)),
        _square("solve", lambda n, m: 2 * n**3 / 3 + 2 * n**2 * m, entry="lu", columns=True),
        _square("lu", lambda n, m: 2 * n**3 / 3),
        _square("qr", lambda n, m: 8 * n**3 / 3, signs_differ=True),
        _square("eigh", lambda n, m: 9 * n**3, signs_differ=True),
        _square("svd", lambda n, m: 22 * n**3, signs_differ=True),
        _fourier("fft", "n"),
        _fourier("rfft", "n", real=True),
        _fourier("fft2", "h", "w"),
    )
}
