"""The programs that `bench.never_slower` compiles both ways: models, random single regions, and tiny ones."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = 4096
# Larger regions take minutes on XLA's slowest path, and say nothing that smaller ones do not.
MOST_MULTIPLY_ADDS = 3e9
MOST_ELEMENTS = 3e7


@dataclass(frozen=True)
class BenchProgram:
    """A function and its arguments."""

    name: str
    function: Callable
    arguments: tuple
    weight_arguments: int = 0
    """How many of the arguments, the first ones, are weights that inference does not change."""

    @property
    def needs_x64(self) -> bool:
        """Whether an argument has 64 bits, of which JAX keeps 32 by default."""
        import jax

        return any(str(leaf.dtype) in ("float64", "int64") for leaf in jax.tree.leaves(self.arguments))

    @property
    def weights(self) -> tuple:
        return self.arguments[: self.weight_arguments]

    @property
    def inputs(self) -> tuple:
        return self.arguments[self.weight_arguments :]


_SMALL = "two-layers"
"""A model that a test of this bench can afford."""
_NO_INFERENCE = "gaussian-process"
_GRADIENT = "-gradient"


def is_inference(name: str) -> bool:
    """Whether a model's weights stay what they are from call to call."""
    return name != _NO_INFERENCE and not name.endswith(_GRADIENT)


def model(name: str) -> BenchProgram:
    """A model of the demo, or of the zoo in its full size, with random weights.

    Raises:
        ImportError: what it needs is not installed.
        KeyError: there is no such model.
    """
    from hlo_dispatch.bench.zoo.fill import fill
    from hlo_dispatch.bench.zoo.models import ZOO
    from hlo_dispatch.demo.models import MODELS

    if name == _SMALL:
        return BenchProgram(name, _two_layers, _arrays(np.random.default_rng(0), ((96, 160), (160, 96), (5, 96))), 2)
    if name not in ZOO:
        workload = MODELS[name].workload()
        return BenchProgram(name, workload.function, tuple(workload.arguments), int(is_inference(name)))
    found = ZOO[name]
    function, shapes = found.built()
    *weights, inputs = shapes
    arguments = (*(fill(tree, number, found.gain) for number, tree in enumerate(weights, 10)), fill(inputs, 1))
    return BenchProgram(name, function, arguments, len(weights) if is_inference(name) else 0)


def _two_layers(inner: Any, outer: Any, x: Any) -> Any:
    import jax

    return jax.nn.relu(x @ inner) @ outer


def random_regions(count: int, seed: int) -> Iterator[BenchProgram]:
    """Products, convolutions and library calls, sizes log-uniform from 1 to 4096 in each dimension.

    Equal arguments give equal programs; their values are made when they are asked for.
    """
    random = np.random.default_rng(seed)
    made = 0
    while made < count:
        kind = random.random()
        program = _convolution(random) if kind < 0.35 else _product(random) if kind < 0.85 else _routine(random)
        if program is not None:
            made += 1
            yield program


def tiny() -> Iterator[BenchProgram]:
    """Programs that no library call can help; a pass that touches them makes them many times slower."""
    import jax
    import jax.numpy as jnp

    for size in (2, 8):
        x = jnp.ones((size, size), "float32")
        yield BenchProgram(f"x @ w at {size}x{size}", lambda x, w: x @ w, (x, x))

    def steps(x, w):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=1000)

    x = jnp.ones((8, 8), "float32")
    yield BenchProgram("a scan of 1000 steps at 8x8", steps, (x, x))

    @jax.vmap
    @jax.grad
    def products(x):
        out = 0
        for i in range(50):
            out = out + (x @ jnp.array([i, i + 1], dtype=jnp.float32)) * x[0]
        return out

    yield BenchProgram("openxla/xla issue 5875", products, (jnp.ones((2, 2)),))


def small() -> Iterator[BenchProgram]:
    """Batches of matrices that are smaller than a library's call, cells of recurrent networks in scans, and kinds that
    users of the field met, in tiny sizes.
    """
    import jax
    import jax.numpy as jnp

    from hlo_dispatch.bench.public_programs import KINDS

    kinds: dict[str, Any] = KINDS
    for kind, programs in kinds.items():
        with jax.enable_x64(kind == "f64-convolution"):
            made: list[Any] = list(programs(True))
        yield from made
    random = np.random.default_rng(0)
    routines: dict[str, Callable] = {
        "cholesky": jnp.linalg.cholesky,
        "lu": lambda a: jax.lax.linalg.lu(a)[0],
        "solve": lambda a: jnp.linalg.solve(a, a[..., :1]),
        "solve_triangular": lambda a: jax.lax.linalg.triangular_solve(a, a, left_side=True, lower=True),
        "inv": jnp.linalg.inv,
        "qr": jnp.linalg.qr,
        "eigh": jnp.linalg.eigh,
        "eigvalsh": jnp.linalg.eigvalsh,
        "svd": jnp.linalg.svd,
        "svdvals": lambda a: jnp.linalg.svd(a, compute_uv=False),
        "fft": jnp.fft.fft,
    }
    for size in (2, 3, 4, 6, 8):
        (square,) = _arrays(random, ((20_000 // size, size, size),))
        definite = square @ square.swapaxes(-1, -2) + 0.1 * np.eye(size, dtype="float32")
        for name, function in routines.items():
            yield BenchProgram(f"{name} {len(square)}x{size}x{size}", function, (definite,))
    for units in (8, 32, 128):
        for name, (gates, cell) in _CELLS.items():
            w, u, b, x = _arrays(
                random, ((units, gates * units), (units, gates * units), (gates * units,), (64, 8, units))
            )

            def unrolled(w: Any, u: Any, b: Any, x: Any, cell: Callable = cell) -> Any:
                state = (jnp.zeros_like(x[0]), jnp.zeros_like(x[0]))
                return jax.lax.scan(lambda s, v: (new := cell(s, v @ w, s[0] @ u, b), new[0]), state, x)[1]

            yield BenchProgram(f"{name} of {units} in a scan", unrolled, (w * 0.1, u * 0.1, b, x), 3)


def _rnn(state: tuple, given: Any, kept: Any, b: Any) -> tuple:
    import jax.numpy as jnp

    return jnp.tanh(given + kept + b), state[1]


def _gru(state: tuple, given: Any, kept: Any, b: Any) -> tuple:
    import jax
    import jax.numpy as jnp

    (reset, update, new), (kept_reset, kept_update, kept_new) = jnp.split(given + b, 3, -1), jnp.split(kept, 3, -1)
    update = jax.nn.sigmoid(update + kept_update)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + kept_reset) * kept_new)
    return (1 - update) * new + update * state[0], state[1]


def _lstm(state: tuple, given: Any, kept: Any, b: Any) -> tuple:
    import jax
    import jax.numpy as jnp

    i, f, g, o = jnp.split(given + kept + b, 4, -1)
    memory = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(memory), memory


_CELLS: dict[str, tuple[int, Callable]] = {"rnn": (1, _rnn), "gru": (3, _gru), "lstm": (4, _lstm)}
"""Cell → how many gates it has, and (state, products of the input, products of the state, bias) → new state."""


def _size(random: np.random.Generator, largest: int = LARGEST) -> int:
    return round(math.exp(random.uniform(0, math.log(largest))))


def _arrays(random: np.random.Generator, shapes: tuple[tuple[int, ...], ...], kind: str = "float32") -> tuple:
    import jax.numpy as jnp

    return tuple(jnp.asarray(random.standard_normal(s, dtype=np.float32) / 4, kind) for s in shapes)


def _product(random: np.random.Generator) -> BenchProgram | None:
    rows, inner, columns = (_size(random) for _ in range(3))
    if rows * inner * columns > MOST_MULTIPLY_ADDS:
        return None
    kind = "bfloat16" if random.random() < 0.3 else "float32"
    name, epilogue = _epilogue(random)
    arguments = _arrays(random, ((rows, inner), (inner, columns), (columns,), (rows, columns)), kind)
    title = f"dot {rows}x{inner}x{columns} {kind} {name}"
    return BenchProgram(title, lambda x, w, b, r: epilogue(x @ w, b, r), arguments)


def _convolution(random: np.random.Generator) -> BenchProgram | None:
    import jax

    kernel = int(random.choice([1, 3, 5]))
    size, batch, inputs, outputs = _size(random, 256), _size(random, 8), _size(random), _size(random)
    is_depthwise = random.random() < 0.3
    if is_depthwise:
        outputs = inputs
    per_group = 1 if is_depthwise else inputs
    work = batch * size * size * outputs * per_group * kernel * kernel
    if work > MOST_MULTIPLY_ADDS / 3 or batch * size * size * max(inputs, outputs) > MOST_ELEMENTS:
        return None
    name, epilogue = _epilogue(random)
    shapes = (
        (batch, size, size, inputs), (kernel, kernel, per_group, outputs), (outputs,), (batch, size, size, outputs)
    )  # fmt: skip

    def function(x, w, b, r):
        y = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=inputs if is_depthwise else 1,
        )  # fmt: skip
        return epilogue(y, b, r)

    groups = "depthwise" if is_depthwise else f"to {outputs}"
    title = f"conv {kernel}x{kernel} {batch}x{size}x{size}x{inputs} {groups} {name}"
    return BenchProgram(title, function, _arrays(random, shapes))


def _routine(random: np.random.Generator) -> BenchProgram | None:
    """A call of LAPACK's or a Fourier transform."""
    import jax
    import jax.numpy as jnp

    name = str(random.choice(["cholesky", "solve_triangular", "lu", "qr", "eigh", "svd", "fft"]))
    size, batch = _size(random, 1024), _size(random, 64)
    if batch * size**3 > MOST_MULTIPLY_ADDS / (30 if name in ("eigh", "svd") else 3):
        return None
    (square,) = _arrays(random, ((batch, size, size),))
    definite = square @ square.swapaxes(-1, -2) / size + 2 * jnp.eye(size)
    functions: dict[str, tuple[Callable, tuple]] = {
        "cholesky": (jnp.linalg.cholesky, (definite,)),
        "solve_triangular": (jax.vmap(jax.scipy.linalg.solve_triangular), (definite, square)),
        "lu": (lambda a: jax.lax.linalg.lu(a), (definite,)),
        "qr": (lambda a: jnp.linalg.qr(a), (square,)),
        "eigh": (lambda a: jnp.linalg.eigh(a), (definite,)),
        "svd": (lambda a: jnp.linalg.svd(a), (square,)),
        "fft": (lambda a: jnp.fft.fft(a), (square,)),
    }
    function, arguments = functions[name]
    return BenchProgram(f"{name} {batch}x{size}x{size}", function, arguments)


def _epilogue(random: np.random.Generator) -> tuple[str, Callable]:
    import jax

    epilogues: dict[str, Callable] = {
        "plain": lambda y, b, r: y,
        "bias": lambda y, b, r: y + b,
        "relu": lambda y, b, r: jax.nn.relu(y + b),
        "gelu": lambda y, b, r: jax.nn.gelu(y + b),
        "residual": lambda y, b, r: jax.nn.relu(y + b + r),
    }
    name = str(random.choice(list(epilogues)))
    return name, epilogues[name]
