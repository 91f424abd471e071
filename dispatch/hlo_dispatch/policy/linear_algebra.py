"""The rule of thumb for library calls that were not measured: which library, and whether it is worth it.

The numbers are read off `bench/linear_algebra.py` on two cores of an AMD EPYC (AVX-512), jax 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

from hlo_dispatch.match.routine import RoutineMatch
from hlo_dispatch.policy.machine import Machine


def in_order_of_speed(match: RoutineMatch, machine: Machine) -> list[str]:
    """The routine's kernels, the one expected to be fastest first."""
    # oneMKL takes its AVX-512 code on Intel's processors only; elsewhere the OpenBLAS in SciPy is faster.
    favourite = "onemkl." if "Intel" in machine.model else "scipy."
    return sorted(match.routine.kernels, key=lambda kernel: not kernel.startswith(favourite))


def worth_calling(match: RoutineMatch, machine: Machine) -> tuple[bool, str]:
    """Whether the kernel is expected to beat JAX's own call, and the sentence why."""
    if match.absorbed:
        return True, f"{match.absorbed} of XLA's copies between row and column order become superfluous"
    batch = 1
    for size in match.matrix[0][:-2]:
        batch *= size
    if batch > 1 and machine.threads > 1:
        return True, f"{batch} matrices are shared out to all threads"
    if match.kernel.startswith("scipy."):
        return False, "JAX's own call runs the same LAPACK on the same matrices"
    return True, "oneMKL's is the faster LAPACK on this processor"
