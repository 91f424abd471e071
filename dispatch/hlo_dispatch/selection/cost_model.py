"""Cost model of anchor matches, for regions without a measurement, with the origin of each of its numbers.

The numbers are read off `bench/grid.py` (products, `--convolutions`, `--poolings`, `--folding`) on two cores of
an AMD EPYC (AVX-512, AVX512-BF16), jax 0.10.2 and 0.12.0.1; they are meant to be right by a wide margin, not to
the last case. `bench/fit.py` fits the thresholds to a machine and says what these lose on it. They decide only
what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.anchors.convolution_spec import DIRECT_CONVOLUTION_KERNEL
from hlo_dispatch.match.equal_matches import once_for_equal_matches
from hlo_dispatch.match.match import Match
from hlo_dispatch.pattern.op_kinds import GLUE_OP, INTEGER_TYPES, OP_KINDS
from hlo_dispatch.process.machine import Machine

# A oneDNN call costs 5 to 10 µs over a SYCL runtime, with which this was measured (less over TBB), XLA's smallest
# kernels 0.5 µs; between two parallel loops of XLA's it costs 35 µs more, because each thread pool spins for a while
# when its work is done. A dense 2-D convolution, which XLA runs at 80 multiply-adds per nanosecond and oneDNN at 1.5
# times that, gains so much from here on:
SMALLEST_DENSE_CONVOLUTION = 4_000_000
# Depthwise and grouped, 1-D and 3-D, transposed convolutions and gradients: XLA is 3 to 100 times slower.
SMALLEST_OTHER_CONVOLUTION = 30_000
# Elements that all windows of a pooling read. Where they overlap XLA takes 85 to 210 us for 150,000 and oneDNN
# 15 to 40; where each element is read once XLA is at most 1.5 times slower, which a call's overhead costs.
SMALLEST_POOLING = 150_000
MIN_READS_PER_ELEMENT = 1.5
SMALLEST_DOT = 1_000_000
# One row times a matrix in half precision, which XLA widens to f32 in a pass of its own, or multiplies element by
# element: 1.5 times as fast in oneDNN and more from here on (`python -m bench.fit --context 5
# --only SMALLEST_HALF_GEMV`).
SMALLEST_HALF_GEMV = 65_536
# In f32 XLA reads the matrix by one thread, the kernel by all: 1.1 to 1.7 times as fast from here on, on a Zen 5 beside
# other work (`python -m bench.fit --context 5 --only SMALLEST_GEMV`).
SMALLEST_GEMV = 262_144
# In a small call one row times transposed weights takes XLA 1 to 4 ns for each multiply-add; one row times other
# weights takes no longer than a kernel, whose call undoes the small call (one row through an LSTM in a scan, 32 to 512
# numbers wide, jax 0.12.0.1).
SMALLEST_IN_SMALL_CALL = 16_000
# Half precision products that XLA computes natively are as fast as oneDNN's below this.
SMALLEST_NATIVE_HALF_DOT = 4_000_000
# One row of f32 takes as long as its weights take to be read, on any processor. Where they lie matters then, and how
# many places of memory are read at once: oneDNN, which reads several rows of weights side by side or reorders them,
# took 0.95 to 2.5 times as long on a Zen 4 with weights in no cache, XLA 0.95 to 15 times from SMALLEST_DOT on (one
# product at a time; `python -m bench.few_rows --rows 1` times layers in a row). In half precision oneDNN took 0.4 to
# 2.5 times as long, so that is measured.
GEMV_KERNEL = "own.narrow_product"
WIDENED = "of widened f16"
"""How planning ends that widens f16: `hlo-dispatch bench public f16` says what it gains."""
# XLA widens quantized weights in a separate loop and reads its result once for all rows of the product
# (`python -m bench.few_rows`); the number of weights that pay for a call is an estimate.
POSITIONS_OF_A_VECTOR = 8
"""Fewer positions in a row leave most of a vector of f64, or half of one of f32, to padding."""
LEAST_SIDE_OF_WRAPPING_PRODUCT = 6
LEAST_LONG_SIDE = 32
LEAST_DEPTH_OF_WRAPPING_PRODUCT = 8
"""Its kernel computes tiles of 6 x 32 results, and packs both operands for them."""
MIN_QUANTIZED_WEIGHTS = 20_000
# XLA's softmax is some ten loops, each of which costs a few microseconds however short it is. On a Zen 4 attentions of
# 390,000 to 1.6 million multiply-adds, one query or as many as keys, f32 and bf16, were 1.5 to 6.1 times as fast in our
# kernel (hlo-dispatch bench attention --shape n=1,heads=12,q=1,kv=256,d=64 and four more).
SMALLEST_ATTENTION = 200_000
# A pass of its own over the result costs XLA 1.1 to 1.9 times the whole product with one of these; with a
# bias, a residual or a relu it costs next to nothing.
COSTLY_ACTIVATIONS = frozenset(
    "elu exp gelu_erf gelu_tanh hardswish log logistic mish pow soft_relu swish tanh".split()
)


# Rows of weights that lie a multiple of this far apart compete for the same lines of an x86 processor's first cache
# (64 sets of 64 bytes). oneDNN multiplies with weights as they lie, and copies them first only where the distance is a
# power of two: on an Intel Xeon its products of 128 rows and more with 3072, 5120 or 6144 columns of f32 were slower
# than XLA's, with 2048, 3088 or 4096 as fast (hlo-dispatch bench matmul_bias_gelu_tanh --shape m=128,k=768,n=3072).
CACHE_WAY_BYTES = 4096
MAX_ROWS_OF_ALIASED_WEIGHTS = 32


# Scale and shift as post-ops cost this much for every result element (a tenth to a half of a 1x1 convolution);
# in the weights, this much for every weight and for the instruction that multiplies them.
NANOSECONDS_PER_SCALED_RESULT = 0.11
NANOSECONDS_PER_SCALED_WEIGHT = 0.4
NANOSECONDS_PER_FOLDING = 15_000


def is_worth_folding(match: Match) -> bool:
    """Whether a convolution's per-channel scales are cheaper in the weights than as post-ops."""
    fused = match.fused
    if match.node.opcode != "convolution" or fused is None or fused.anchor.weights is None:
        return False
    if fused.has_static_weights and match.folded is not None:
        if fused.static >= set(match.folded.extra_reads):
            return True  # once, before the first call
    results = match.output.shape.elements
    weights = fused.anchor.weights.node.shape.elements
    folding = NANOSECONDS_PER_FOLDING + NANOSECONDS_PER_SCALED_WEIGHT * weights
    return results * NANOSECONDS_PER_SCALED_RESULT > folding


@once_for_equal_matches
def is_worth_dispatching(match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
    """Whether the kernel is expected to beat XLA on this match, and the sentence why."""
    return MODELS[OP_KINDS[match.anchor.entry.op_kind].cost_model](match, implementation, machine)


def is_gemv(match: Match) -> bool:
    """Whether it is a product of one row in f32 for which the entry names the GEMV kernel as an alternative."""
    anchor = match.anchor
    if any([size != 1 for size, _ in anchor.destination[:-1]]) or anchor.source.element_type != "f32":
        return False
    return GEMV_KERNEL in anchor.entry.alternative_kernels


def is_directly_convolved(match: Match) -> bool:
    """Whether it is a depthwise convolution of f32 that oneDNN has no depthwise kernel for as it lies."""
    return DIRECT_CONVOLUTION_KERNEL in match.kernels[1:]


def is_small(match: Match) -> bool:
    """Whether the match is too small for a call, but as fast in a kernel as in XLA as a glue op between two calls."""
    opcode, arithmetic = match.anchor.node.opcode, match.anchor.multiply_adds
    if opcode == "convolution":
        return arithmetic < (SMALLEST_DENSE_CONVOLUTION if _is_plain(match) else SMALLEST_OTHER_CONVOLUTION)
    return opcode != "dot" or arithmetic < _smallest_product(match)


def is_slow_in_small_call(match: Match) -> bool:
    """Whether XLA's code for the match is much slower in a small call than anywhere else."""
    if match.fused is None or match.node.opcode != "dot":
        return False
    return match.anchor.multiply_adds >= SMALLEST_IN_SMALL_CALL and _reads_weights_with_strides(match.anchor)


def _convolution(match: Match, implementation: str) -> tuple[bool, str]:
    anchor = match.anchor
    arithmetic = anchor.multiply_adds
    smallest = SMALLEST_DENSE_CONVOLUTION if _is_plain(match) else SMALLEST_OTHER_CONVOLUTION
    if arithmetic < smallest:
        return False, f"{arithmetic:,} multiply-adds are too few to pay for a library call"
    if match.kernel == DIRECT_CONVOLUTION_KERNEL:
        return _direct_convolution(match, implementation)
    if WIDENED in implementation and _is_plain(match) and not match.has_static_weights:
        return False, "XLA widens f16 as the kernel does, and its convolution in f32 is as fast"
    if "gemm" in implementation:
        return False, f"oneDNN would unfold this convolution into a matrix product ({implementation})"
    return True, f"oneDNN's {implementation} convolutions beat XLA's"


def _direct_convolution(match: Match, implementation: str) -> tuple[bool, str]:
    anchor, shape = match.anchor, match.output.shape
    is_dense = anchor.node.proto.feature_group_count <= 1
    if anchor.source.element_type == "f64" and is_dense and len(anchor.source.dimensions) == 4:
        return False, "XLA has a kernel of its own for dense two-dimensional convolutions of f64"
    if "positions" in implementation and shape.dimensions[shape.minor_to_major[0]] < POSITIONS_OF_A_VECTOR:
        return False, "its rows are shorter than the vectors of positions that the kernel computes"
    return True, "the kernel computes vectors of positions or channels where XLA computes them one by one"


def _pooling(match: Match) -> tuple[bool, str]:
    reads = match.anchor.multiply_adds
    if reads < SMALLEST_POOLING:
        return False, f"windows of {reads:,} elements in all are too few to pay for a library call"
    if reads < MIN_READS_PER_ELEMENT * math.prod(match.anchor.source.sizes):
        return False, "windows that hardly overlap are a loop that XLA is good at"
    return True, "XLA reads overlapping windows element by element; oneDNN is 5 to 14 times faster"


def _weight_only_quantized_matmul(match: Match) -> tuple[bool, str]:
    (rows, _), _ = match.anchor.destination
    weights = match.anchor.multiply_adds // rows
    if weights < MIN_QUANTIZED_WEIGHTS:
        return False, f"{weights:,} weights are too few to pay for a call"
    return True, "XLA writes the widened weights to memory and reads them again; the kernel widens them in registers"


def _wrapping_product(match: Match) -> tuple[bool, str]:
    arithmetic = match.anchor.multiply_adds
    if arithmetic < SMALLEST_DOT:
        return False, f"{arithmetic:,} multiply-adds are too few to pay for a call"
    fewest, most = sorted(size for size, _ in match.anchor.destination[-2:])
    depth = match.anchor.source.sizes[-1]
    if fewest < LEAST_SIDE_OF_WRAPPING_PRODUCT or most < LEAST_LONG_SIDE or depth < LEAST_DEPTH_OF_WRAPPING_PRODUCT:
        return False, f"most of the kernel's tiles would be padding at {fewest} x {most} results of {depth} products"
    return True, "XLA multiplies integers one by one; the kernel multiplies them in vectors"


def _is_plain(match: Match) -> bool:
    """Whether XLA has a good kernel for it: an ungrouped 2-D forward convolution in f32, to which it widens f16, or
    integers.
    """
    anchor = match.anchor
    return (
        anchor.kernel == "onednn.convolution"
        and anchor.weights is not None
        and anchor.source.element_type in ("f32", "f16", *INTEGER_TYPES)
        and len(anchor.source.dimensions) == len(anchor.weights.dimensions) == 4
    )


def _product(match: Match, machine: Machine) -> tuple[bool, str]:
    arithmetic = match.anchor.multiply_adds
    if arithmetic < _smallest_product(match):
        return False, f"{arithmetic:,} multiply-adds are too few to pay for a library call"
    if match.anchor.source.element_type in INTEGER_TYPES:
        return True, "oneDNN adds up four products of eight bits at once, and what follows costs no pass of its own"
    return _product_of_numbers(match, machine)


def _smallest_product(match: Match) -> int:
    """Multiply-adds of the smallest product that pays for a call."""
    anchor = match.anchor
    if is_gemv(match):
        return SMALLEST_GEMV
    is_half = anchor.source.element_type in HALF_TYPES
    return SMALLEST_HALF_GEMV if is_half and _is_matrix_vector(anchor) else SMALLEST_DOT


def _is_matrix_vector(anchor: Anchor) -> bool:
    return min(size for size, _ in anchor.destination[-2:]) == 1


def _product_of_numbers(match: Match, machine: Machine) -> tuple[bool, str]:
    anchor = match.anchor
    arithmetic = anchor.multiply_adds
    rows, _ = anchor.destination[-2]
    is_vector = _is_matrix_vector(anchor)
    if match.kernel == GEMV_KERNEL:
        return True, "one row takes as long as its weights take to be read, which the kernel does once, as they lie"
    costly = _costly_activations(match)
    half = anchor.source.element_type if anchor.source.element_type != "f32" else ""
    if half and not machine.has_bf16_arithmetic:
        return False, f"this CPU has no {half} arithmetic: XLA's f32 product is as good"
    if half and is_vector:
        return True, f"{half} matrix-vector products are 1.5 to 20 times faster in oneDNN"
    if _reads_weights_with_strides(anchor):
        return True, "XLA reads transposed weights with strides; oneDNN is 10 times faster"
    if half and anchor.node.operands[0].shape.element_type == "f32":
        return True, f"XLA widens these {half} operands to f32 in passes of their own"
    if half and arithmetic < SMALLEST_NATIVE_HALF_DOT:
        return False, f"XLA's own {half} product is as fast at {arithmetic:,} multiply-adds"
    if costly and not is_vector and (half or rows <= MAX_ROWS_OF_ALIASED_WEIGHTS or not _aliases_weights(anchor)):
        return True, f"{costly[0]} costs no pass of its own"
    if match.has_static_weights and not is_vector:
        return True, "its weights are prepacked before the first call, and the kernel reads them in place"
    if costly and not is_vector:
        return False, "XLA's own f32 product is as fast: rows of these weights share lines of the first cache"
    return False, f"XLA's own {half or 'f32'} product is as fast, and what follows it is cheap"


def _costly_activations(match: Match) -> list[str]:
    """The activations of the epilogue for which XLA needs a separate pass."""
    post_ops = () if match.fused is None else match.fused.post_ops
    return [op.algorithm for op in post_ops if op.algorithm in COSTLY_ACTIVATIONS]


def _aliases_weights(anchor: Anchor) -> bool:
    """Whether oneDNN reads f32 weights as they lie although their rows share lines of the first cache."""
    if anchor.weights is None or anchor.weights.strides[-1] != 1:
        return False
    distance = 4 * anchor.weights.strides[-2]
    return distance % CACHE_WAY_BYTES == 0 and distance.bit_count() > 1


def _reads_weights_with_strides(anchor: Anchor) -> bool:
    """Whether XLA multiplies one row with transposed weights."""
    (rows, _), (columns, _) = anchor.destination[-2:]
    return rows == 1 and columns > 1 and anchor.weights is not None and anchor.weights.strides[-2] == 1


MODELS: dict[str, Callable[[Match, str, Machine], tuple[bool, str]]] = {
    GLUE_OP: lambda _match, _implementation, _machine: (False, "a glue op pays only between two calls of a call group"),
    "convolution": lambda match, implementation, _: _convolution(match, implementation),
    "pooling": lambda match, _implementation, _machine: _pooling(match),
    "weight_only_quantized_matmul": lambda match, _implementation, _machine: _weight_only_quantized_matmul(match),
    "wrapping_product": lambda match, _implementation, _machine: _wrapping_product(match),
    "product": lambda match, _implementation, machine: _product(match, machine),
}
"""The cost models that op kinds name (pattern/op_kinds.py)."""
