"""Running-time estimate: an upper bound of a program's time from its operation counts, if it does not depend on inputs.

A running program cannot be stopped. So a measurement runs it only if it does the same work on any inputs, and if the
upper bound fits into the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from hlo_dispatch.analysis.loop_fusion import evaluations
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.match.routines.sort import TOP_K

# Ops with side effects must not be repeated.
NEVER_RUN = frozenset(
    "infeed outfeed send send-done recv recv-done rng rng-bit-generator rng-get-and-update-state all-reduce all-gather "
    "all-to-all collective-permute reduce-scatter partition-id replica-id async-start".split()
)
# JAX's own library calls do the same work on all inputs that they succeed on; other calls may not.
_LAPACK = "lapack_"
_FREE = frozenset("parameter constant tuple get-tuple-element bitcast after-all partition-id".split())
# A seventh of the f32 peak of two cores of an AMD EPYC (bench/results). Grouped convolutions, convolutions that are not
# f32 and products in other types run in plain loops; those in half precision do not, whatever a processor has for them.
DENSE_PER_NANOSECOND = 40.0
HALF_PER_NANOSECOND = DENSE_PER_NANOSECOND / 4
PLAIN_PER_NANOSECOND = 1.0
_PRODUCTS_PER_NANOSECOND = {"f32": DENSE_PER_NANOSECOND, "bf16": HALF_PER_NANOSECOND, "f16": HALF_PER_NANOSECOND}
_FACTORED_PER_NANOSECOND = {"potrf": 50.0, "trsm": 50.0, "getrf": 30.0, "geqrf": 10.0}
_REDUCED_PER_NANOSECOND = 1.0
"""Of the other library calls, eigenvalues and singular values; both of rows x columns x the fewer of them."""
ELEMENTS_PER_NANOSECOND = 1.0
NANOSECONDS_PER_INSTRUCTION = 300.0
"""Overhead of a top-level instruction; matters in loops of many short iterations."""
NANOSECONDS_PER_LIBRARY_CALL = 1000.0
"""Overhead of a LAPACK call, which checks its arguments."""
# They read no more of their operands than they give.
_SLICES = frozenset(("slice", "dynamic-slice", "gather"))
# With the work per element: transcendental functions take 10 to 20 operations.
_COSTLY: dict[str, int] = dict.fromkeys(
    "atan2 cbrt exponential log log-plus-one exponential-minus-one tanh erf power sine cosine tan".split(), 10
)


def running_time(module: Module, assumed_trips: int | None = None) -> float | None:
    """Upper bound of seconds for one run on two cores; None where it depends on the inputs.

    Args:
        assumed_trips: trip count of loops of unknown length; None: they depend on the inputs.
    """
    return RunningTimes(module, assumed_trips).computation(module.entry.id)


def calls_libraries(module: Module) -> bool:
    """Whether any instruction is a library call."""
    return any(map(is_library_call, module.instructions))


def _does_the_same_work(instruction: InstructionProto) -> bool:
    """Whether a custom-call's work does not depend on values."""
    return is_library_call(instruction) or instruction.custom_call_target == TOP_K


def is_library_call(instruction: InstructionProto) -> bool:
    """Whether a custom-call is one into LAPACK, made by JAX."""
    return instruction.custom_call_target.startswith(_LAPACK)


class RunningTimes:
    """Running-time estimates of one module's computations, cached."""

    def __init__(
        self, module: Module, assumed_trips: int | None = None, digest_of: Callable[[int], bytes] | None = None
    ) -> None:
        """
        Args:
            assumed_trips: as for `running_time`.
            digest_of: id of a computation → its digest, so that equal fusions are estimated once.
        """
        self._module, self._assumed_trips, self._digest_of = module, assumed_trips, digest_of
        self._known: dict[int, float | None] = {}
        self._known_fusions: dict[tuple[bytes | int, str], float | None] = {}

    def computation(self, identifier: int) -> float | None:
        """Seconds for one run of a computation that is not a fusion's."""
        if identifier not in self._known:
            by_id = {i.id: i for i in self._module.computations[identifier].instructions[:]}
            self._known[identifier] = self.of(by_id.values(), by_id)
        return self._known[identifier]

    def of(self, among: Iterable[InstructionProto], by_id: Mapping[int, InstructionProto]) -> float | None:
        """Total seconds of some instructions of a computation; None as for `running_time`.

        Args:
            by_id: all instructions of the computation.
        """
        parts = [self._instruction(i, by_id) for i in among if i.opcode not in _FREE]
        return _sum(parts, NANOSECONDS_PER_INSTRUCTION * 1e-9 * len(parts))

    def are_within(
        self, limit: float, among: Iterable[InstructionProto], by_id: Mapping[int, InstructionProto]
    ) -> bool:
        """Whether some instructions of a computation take fewer than `limit` seconds; False where that is unknown."""
        for instruction in among:
            seconds = 0.0 if instruction.opcode in _FREE else self._instruction(instruction, by_id)
            limit -= math.inf if seconds is None else seconds
            if limit <= 0:
                return False
        return True

    def _instruction(self, instruction: InstructionProto, by_id: Mapping[int, InstructionProto]) -> float | None:
        opcode = instruction.opcode
        if opcode in NEVER_RUN or (opcode == "custom-call" and not _does_the_same_work(instruction)):
            return None
        called = instruction.called_computation_ids[:]
        if opcode == "while":
            known = trip_count(instruction)
            times = self._assumed_trips if known is None else known
            inside = self._all(called)
            return None if times is None or inside is None else times * inside
        if opcode == "conditional":
            branches = [self.computation(branch) for branch in called]
            return None if None in branches else max((b for b in branches if b is not None), default=0.0)
        if opcode == "call":
            return self._all(called)
        if opcode == "fusion":
            kind = instruction.fusion_kind
            key = (called[0] if self._digest_of is None else self._digest_of(called[0]), kind)
            if key not in self._known_fusions:
                self._known_fusions[key] = self._fused(self._module.computations[called[0]], kind)
            return self._known_fusions[key]
        return _work(instruction, [shape_of(by_id[operand].shape) for operand in instruction.operand_ids[:]]) * 1e-9

    def _fused(self, computation: ComputationProto, kind: str) -> float | None:
        """Seconds for a fusion; a loop fusion computes an element of each instruction once for each use."""
        by_id = {instruction.id: instruction for instruction in computation.instructions[:]}
        times = evaluations(computation) if kind == "kLoop" else {}
        # Of one of several results the evaluations are not known.
        fewest = 0.0 if shape_of(by_id[computation.root_id].shape).is_array else 1.0
        parts: list[float | None] = []
        for instruction in by_id.values():
            if instruction.opcode in _FREE:
                continue
            seconds = self._instruction(instruction, by_id)
            if seconds is not None and times:
                elements = shape_of(instruction.shape).elements
                # Products inside of a loop fusion are plain loops.
                slower = DENSE_PER_NANOSECOND / PLAIN_PER_NANOSECOND if instruction.opcode in ANCHORS else 1.0
                seconds *= slower * max(fewest, times[instruction.id] / max(elements, 1))
            parts.append(seconds)
        return _sum(parts)

    def _all(self, called: Iterable[int]) -> float | None:
        return _sum([self.computation(identifier) for identifier in called])


def _sum(parts: Sequence[float | None], more: float = 0.0) -> float | None:
    return None if None in parts else sum((part for part in parts if part is not None), more)


def _work(instruction: InstructionProto, operands: list[Shape]) -> float:
    """Nanoseconds of an instruction without expensive callees."""
    result = shape_of(instruction.shape)
    if instruction.opcode in _SLICES:
        return result.elements / ELEMENTS_PER_NANOSECOND
    # For tuples (a sort, a variadic reduction) the operands give the size.
    elements = max(result.elements if result.is_array else 0, *(o.elements for o in operands if o.is_array), 1)
    if instruction.opcode == "dot":
        summed = instruction.dot_dimension_numbers.lhs_contracting_dimensions
        inner = math.prod(operands[0].dimensions[dimension] for dimension in summed)
        return result.elements * inner / _PRODUCTS_PER_NANOSECOND.get(result.element_type, PLAIN_PER_NANOSECOND)
    if instruction.opcode == "convolution":
        outputs = instruction.convolution_dimension_numbers.kernel_output_feature_dimension
        inner = operands[1].elements // max(1, operands[1].dimensions[outputs])
        groups = max(instruction.feature_group_count, instruction.batch_group_count)
        is_dense = result.element_type == "f32" and groups <= 1
        return result.elements * inner / (DENSE_PER_NANOSECOND if is_dense else PLAIN_PER_NANOSECOND)
    if is_library_call(instruction):
        return _library_work(instruction.custom_call_target, operands)
    if instruction.opcode == "reduce-window":
        elements *= math.prod(dimension.size for dimension in instruction.window.dimensions)
    if instruction.opcode in ("sort", "custom-call"):
        elements *= max(1, math.ceil(math.log2(elements))) * 10
    return elements * _COSTLY.get(instruction.opcode, 1) / ELEMENTS_PER_NANOSECOND


def _library_work(target: str, operands: list[Shape]) -> float:
    """Nanoseconds of a LAPACK call: "lapack_spotrf_ffi" of (…, m, n)."""
    routine = target.removeprefix(_LAPACK).removesuffix("_ffi")[1:]
    matrix, *more = operands
    inner = min(matrix.dimensions[-2:]) if len(matrix.dimensions) > 1 else 1
    elements = more[0].elements if routine == "trsm" and more else matrix.elements
    work = elements * inner / _FACTORED_PER_NANOSECOND.get(routine, _REDUCED_PER_NANOSECOND)
    return NANOSECONDS_PER_LIBRARY_CALL + max(work, matrix.elements / ELEMENTS_PER_NANOSECOND)
