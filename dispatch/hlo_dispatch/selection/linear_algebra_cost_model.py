"""Cost model of library routines, for calls without a measurement: the preferred library, and whether it pays.

The numbers are read off `bench/linear_algebra.py` on two cores of an AMD EPYC (AVX-512), jax 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import math

from hlo_dispatch.ir.schema import BYTES_PER_ELEMENT
from hlo_dispatch.match.match import LibraryCall, Match
from hlo_dispatch.process.machine import Machine

# The kernels share batches of matrices up to this size out to all threads (kernels/lapack/batch.cc).
LARGEST_SMALL_MATRIX = 96 * 96
# Factoring a matrix of 8x8 is some 200 multiply-adds, less than any library's call spends on looking at its arguments:
# there only code that works on several matrices at once can be faster than the LAPACK that JAX calls.
LARGEST_TINY_MATRIX = 8 * 8
# Every library computes less than this in 20 µs.
FEWEST_ELEMENTS = 1 << 14
# Lines that far apart fall into one set of the first-level cache: XLA's copies between row and column order, one
# line after another, then take five to ten times as long.
CONFLICTING_BYTES = 4096
# One transform of so many elements leaves the caches; oneMKL then needs half of DUCC's time.
SMALLEST_LONG_TRANSFORM = 1 << 19
# Of one right-hand side or a few, solving is reading the matrix, which oneMKL does three times as fast.
MOST_RIGHT_HAND_SIDES = 4
# From here on our own code, on XLA's threads, beats libraries that do without AVX-512; it works on panels of 48 sides.
SMALLEST_BLOCKED = 256
FEWEST_SIDES = 64
# Small matrices are factored side by side in the lanes of a vector, sixteen at once.
FEWEST_IN_LANES = 16
# Rows, columns and right-hand sides of those whose LU, triangular systems and eigenvalues are, too
# (kernels/lapack/lanes.cc).
MOST_ROWS_IN_LANES = 8
# The rows of a matrix whose columns our own LU keeps in registers.
MOST_LU_ROWS = 64
# XLA accumulates so many elements in some microseconds, as many as a call takes.
FEWEST_ACCUMULATED = 1 << 11
# XLA takes a nanosecond and more for each product of an entry and a number, and a call some ten microseconds; an
# estimate.
FEWEST_SPARSE_PRODUCTS = 1 << 16
# Two cores of an AMD EPYC, jax 0.12.0.1, stock and kernel, least microseconds: 15 and 6 for 64 rows of 256, 29 and 17
# for 6,400 of 16, but 39 and 106 for 64,000 rows of one number.
FEWEST_GATHERED = 1 << 14
SHORTEST_GATHERED_ROW = 16
# XLA takes a nanosecond for each index that it counts, and some for each step of a search; estimates.
FEWEST_COUNTED = 1 << 15
FEWEST_SEARCH_STEPS = 1 << 15
# So many keys are sorted in some 20 µs, in one row or in short ones (two cores of a Xeon, jax 0.10.2 and 0.12.0.1).
SHORTEST_SORTED = 1 << 11
# XLA hashes so many pairs of words in some microseconds, in its loop's own calls.
FEWEST_HASHED = 1 << 11
# Routines whose arithmetic costs far more than any copy.
_HEAVY = frozenset(("lu", "qr", "householder_product", "eigh", "svd"))


def by_expected_speed(match: Match, machine: Machine) -> list[str]:
    """The routine's kernels, the one that is expected to be fastest first."""
    # oneMKL takes its AVX-512 code on Intel's processors only; elsewhere the OpenBLAS in SciPy wins at large
    # matrices, and loses where it would be busier with its threads than with the matrix.
    is_small = _is_batch_of_small(match) and match.name in _HEAVY - {"lu"} | {"cholesky"}
    if _suits_blocked(match, machine):
        favourite = "blocked."
    else:
        favourite = "onemkl." if "Intel" in machine.model or is_small or _has_few_sides(match) else "scipy."
    return sorted(match.kernels, key=lambda kernel: not kernel.startswith(favourite))


def is_worth_calling_library(match: Match, machine: Machine) -> tuple[bool, str]:
    """Whether the kernel is expected to beat stock XLA, and the sentence why."""
    if (verdict := _BY_NAME.get(match.name, _BY_OPCODE.get(match.node.opcode))) is not None:
        return verdict(match, machine)
    sizes, dtype = _matrix(match)
    if math.prod(sizes) < FEWEST_ELEMENTS:
        return False, f"{math.prod(sizes):,} elements are too few for a gain"
    if _is_batch_of_small(match) and (found := _small(match, machine)) is not None:
        return found
    if match.kernel.startswith("blocked."):
        if not _suits_blocked(match, machine):
            return False, "too small for a gain"
        return True, "our own code uses AVX-512, and XLA's threads"
    if match.name == "qr":
        # `hlo-dispatch bench everyday "linear algebra"`: 0.93 to 1.08 of JAX's call on two cores of a Xeon.
        return False, "JAX's own call is as fast, for all that is known without measuring"
    if match.kernel.startswith("onemkl.") and ("Intel" in machine.model or _has_few_sides(match)):
        return True, "oneMKL is faster at this than the LAPACK that JAX calls"
    removed_copies = _call(match).removed_copies
    if not removed_copies:
        return False, "JAX's own call runs on the same matrices, with the same copies around it"
    conflicts = sizes[-1] * BYTES_PER_ELEMENT[dtype] % CONFLICTING_BYTES == 0
    if match.name in _HEAVY and not (match.name == "lu" and conflicts):
        return False, "XLA's copies between row and column order are a small part of it"
    copies = f"{removed_copies} of XLA's copies" if removed_copies > 1 else "one of XLA's copies"
    return True, f"{copies} between row and column order becomes superfluous"


def _sort(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for sorts: of few short rows, comparing takes no longer. TopK has the same bound, an estimate."""
    is_top_k = match.name == "top_k"
    *rows, length = match.operands["values" if is_top_k else "keys"].sizes
    side_by_side = not is_top_k and math.prod(rows) >= FEWEST_IN_LANES and math.prod(rows) * length >= SHORTEST_SORTED
    if length < SHORTEST_SORTED and not side_by_side:
        return False, f"rows of {length:,} keys are too short for a gain"
    if is_top_k:
        return True, "the kernel reads a row by vectors, and keeps what is above a bound"
    return True, "XLA calls a comparison for each two keys; the kernel compares none"


def _cumulative(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for cumulative sums and their like."""
    elements = math.prod(match.operands["src"].sizes)
    if elements < FEWEST_ACCUMULATED:
        return False, f"{elements:,} elements are too few for a gain"
    return True, "XLA accumulates in several passes; the kernel reads and writes memory once"


def _hash(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for the hash of random numbers."""
    words = match.output.shape.elements
    if words < FEWEST_HASHED:
        return False, f"{words:,} pairs of words are too few for a gain"
    return True, "XLA passes over both words five times and copies them as often; the kernel reads them once"


def _sparse_product(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for products of a sparse matrix and a dense one."""
    if match.multiply_adds < FEWEST_SPARSE_PRODUCTS:
        return False, f"{match.multiply_adds:,} products are too few for a gain"
    return True, "XLA writes the gathered rows to memory and adds them up by one thread; the kernel does neither"


def _gathered_sums(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for sums of gathered rows."""
    width = match.operands["src"].sizes[1]
    if match.multiply_adds < FEWEST_GATHERED or width < SHORTEST_GATHERED_ROW:
        return False, f"{match.multiply_adds:,} gathered numbers in rows of {width:,} are too few for a gain"
    return True, "XLA looks up a row for each of its numbers; the kernel adds up whole rows in registers"


def _bincount(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for counts of indices."""
    if match.multiply_adds < FEWEST_COUNTED:
        return False, f"{match.multiply_adds:,} indices are too few for a gain"
    return True, "XLA counts one index after another by one thread; in the kernel each thread has counts of its own"


def _search(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for searches in sorted arrays."""
    if match.multiply_adds < FEWEST_SEARCH_STEPS:
        return False, f"{match.multiply_adds:,} steps of bisection are too few for a gain"
    return True, "XLA writes the places to memory after each step of bisection; the kernel keeps them in registers"


def _small(match: Match, machine: Machine) -> tuple[bool, str] | None:
    """The verdict for a batch of small matrices; None: no special case."""
    *batch, rows, columns = _matrix(match)[0]
    if rows * columns <= LARGEST_TINY_MATRIX and not match.kernel.startswith("blocked."):
        return False, f"a library's call for each matrix of {rows}x{columns} takes longer than its arithmetic"
    if machine.threads > 1:
        # jaxlib 0.10.2 does that, too, 0.12.0.1 does not (CPU time by thread, in /proc/self/task).
        return True, f"{math.prod(batch)} small matrices are shared out to all threads, which not every jaxlib does"
    return None


def _product(match: Match, machine: Machine) -> tuple[bool, str]:
    """The verdict for products of triangular factors: our own kernel pays; oneMKL's took twice XLA's time on AMD."""
    if match.name == "product":
        return False, "XLA's own product is as fast, for all that is known without measuring"
    if not _suits_blocked(match, machine):
        return False, "too small for a gain"
    return True, "what is 0 need not be multiplied"


def _transform(match: Match, _: Machine) -> tuple[bool, str]:
    """The verdict for transforms: over several dimensions, and in the cache, XLA's DUCC is as fast or faster."""
    source = match.operands["src"]
    length = source.sizes[-1]
    call = _call(match)
    if call.options["rank"] == 1:
        if length >= SMALLEST_LONG_TRANSFORM and math.prod(source.sizes) == length:
            return True, f"oneMKL transforms {length:,} elements in half the time"
        stride = source.strides[-1] * BYTES_PER_ELEMENT[source.element_type]
        if call.removed_copies and stride % CONFLICTING_BYTES == 0 and length * stride >= CONFLICTING_BYTES**2 // 4:
            return True, "the transposes around the transform become superfluous"
    return False, "XLA's own transform is as fast"


def _is_batch_of_small(match: Match) -> bool:
    sizes = _matrix(match)[0]
    return math.prod(sizes[:-2]) > 1 and sizes[-2] * sizes[-1] <= LARGEST_SMALL_MATRIX


def _is_batch_of_tiny(match: Match) -> bool:
    """Whether so many tiny matrices are worked on at once that no library's call for each of them is as fast."""
    *batch, rows, columns = _matrix(match)[0]
    sides = match.operands["b"].sizes[-2:] if match.name == "triangular_solve" else ()
    return (
        match.name in ("cholesky", "lu", "triangular_solve", "eigh")
        and math.prod(batch) >= FEWEST_IN_LANES
        and max(rows, columns, *sides) <= MOST_ROWS_IN_LANES
    )


def _suits_blocked(match: Match, machine: Machine) -> bool:
    """Whether our own code is the fastest: large real matrices, where the libraries do not use AVX-512."""
    sizes, dtype = _matrix(match)
    if f"blocked.{match.name}" not in match.kernels or dtype not in ("f32", "f64"):
        return False
    if not {"avx512f", "avx512dq"} <= machine.features:
        return False
    if _is_batch_of_tiny(match):
        return True
    if "Intel" in machine.model or match.name == "eigh":
        return False
    if match.name == "cholesky" and _is_batch_of_small(match):
        return math.prod(sizes[:-2]) >= FEWEST_IN_LANES
    if match.name == "lu":
        return sizes[-2] <= MOST_LU_ROWS or min(sizes[-2:]) >= SMALLEST_BLOCKED
    if match.node.opcode == "dot":
        return min(*sizes[-2:], match.operands["b"].sizes[-1]) >= SMALLEST_BLOCKED
    return sizes[-1] >= SMALLEST_BLOCKED and (match.name == "cholesky" or _sides(match) >= FEWEST_SIDES)


def _has_few_sides(match: Match) -> bool:
    """Whether a triangular system is solved for a few vectors only."""
    return match.name == "triangular_solve" and _sides(match) <= MOST_RIGHT_HAND_SIDES


_BY_OPCODE = {"dot": _product, "fft": _transform, "sort": _sort}
"""Opcode of routines that are no factorization → their verdict."""
_BY_NAME = (
    {"top_k": _sort, "sparse_product": _sparse_product, "bincount": _bincount, "searchsorted": _search}
    | {"threefry2x32": _hash, "gathered_sums": _gathered_sums}
    | {f"cumulative_{name}": _cumulative for name in ("sum", "product", "maximum", "minimum", "logsumexp")}
)


def _sides(match: Match) -> int:
    """The number of right-hand sides of a triangular system."""
    return match.operands["b"].sizes[-1 if _call(match).options["side"] == ord("L") else -2]


def _call(match: Match) -> LibraryCall:
    assert match.library_call is not None, "a routine's match is a library call"
    return match.library_call


def _matrix(match: Match) -> tuple[list[int], str]:
    """Sizes of the first operand (batch dimensions, rows, columns) and its element type."""
    first = next(iter(match.operands.values()))
    return first.sizes, first.element_type
