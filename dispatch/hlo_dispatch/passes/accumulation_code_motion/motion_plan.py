"""Motion plan: which accumulators of a loop are added behind it, and which values are stacked for that.

Inside the loop, an accumulator costs a product with few rows, and its summand and itself are read and written in each
iteration. Behind it, one product reads stacks: those that the loop slices anyway, or new ones that it writes. The plan
compares the bytes moved by both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hlo_dispatch.analysis.binding_time import is_parameter_element
from hlo_dispatch.analysis.counted_loop import CountedLoop
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, Node
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.passes.accumulation_code_motion.accumulators import (
    Accumulator,
    StackedOperand,
    Summand,
    find_accumulators,
    with_leading_dimension,
)

_ACCUMULATOR_ACCESSES = 4
"""An iteration writes the summand, reads it and the accumulator, and writes that."""
_STACK_ACCESSES = 3
"""A stack's buffer is cleared, written slice by slice, and read."""
_LEAST_RATIO = 2
"""Smallest ratio of bytes saved to bytes spent: both are estimates."""
_FREE_BYTES = 64 << 20
"""Bytes of new stacks that any loop may get; otherwise, as many as the loop carries already."""


@dataclass(frozen=True)
class Stack:
    """A value of each iteration in one array: an element of the loop's tuple, or a new one."""

    value: Node
    index: Node
    """The number of an iteration's slice."""
    is_reversed: bool
    """Whether the last slice comes first."""
    trips: int
    element: int | None = None
    """Index of the array in the loop's tuple; None: a new one."""

    @property
    def shape(self) -> Shape:
        """The shape of a new array: the number of the slice in front of the value's dimensions, outermost in memory."""
        return with_leading_dimension(self.value.shape, self.trips)


@dataclass
class MotionPlan:
    """The accumulators of one loop that are added behind it."""

    instruction: InstructionProto
    """The loop."""
    loop: CountedLoop
    accumulators: list[Accumulator] = field(default_factory=list[Accumulator])
    stack_of: dict[StackedOperand, Stack] = field(default_factory=dict[StackedOperand, Stack])
    new_stacks: list[Stack] = field(default_factory=list[Stack])
    """The stacks that the loop has to write, each once."""

    @property
    def bytes_saved(self) -> int:
        """Bytes that an iteration no longer reads or writes."""
        return sum(map(_saved, self.accumulators))


def plan_motion(instruction: InstructionProto, loop: CountedLoop, read_by_condition: set[int]) -> MotionPlan:
    """Plan the motion of a loop's accumulators, the largest ones first, where the bytes moved become fewer."""
    plan = MotionPlan(instruction, loop)
    found = sorted(find_accumulators(loop, read_by_condition), key=lambda together: -_bytes_of(together))
    limit = max(_FREE_BYTES, sum(shape_of(shape).bytes for shape in instruction.shape.tuple_shapes[:]))
    new: dict[Stack, None] = {}
    sums: list[list[Accumulator]] = []
    for together in found:
        if not all(summand.is_product for summand in _summands(together)):
            sums.append(together)
        elif (stacks := _stacks_of(together, plan)) is not None:
            more = dict.fromkeys(stack for stack in stacks.values() if stack.element is None and stack not in new)
            spent, saved = _STACK_ACCESSES * _bytes(more), loop.trips * sum(map(_saved, together))
            if saved >= _LEAST_RATIO * spent and _bytes(new | more) <= limit:
                plan.accumulators += together
                plan.stack_of |= stacks
                new |= more
    plan.new_stacks = list(new)
    for together in sums if plan.accumulators else ():
        if (stacks := _known_stacks(together, plan)) is not None:
            plan.accumulators += together
            plan.stack_of |= stacks
    return plan


def _summands(accumulators: Iterable[Accumulator]) -> Iterable[Summand]:
    """All summands, each once."""
    return {summand.node: summand for one in accumulators for summand in one.summands}.values()


def _bytes_of(accumulators: Iterable[Accumulator]) -> int:
    return sum(one.element.shape.bytes for one in accumulators)


def _saved(accumulator: Accumulator) -> int:
    return _ACCUMULATOR_ACCESSES * accumulator.element.shape.bytes * len(accumulator.summands)


def _bytes(stacks: Iterable[Stack]) -> int:
    return sum(stack.shape.bytes for stack in stacks)


def _stacks_of(accumulators: Iterable[Accumulator], plan: MotionPlan) -> dict[StackedOperand, Stack] | None:
    """The stack of each operand of the accumulators' products; None where the iterations cannot be numbered."""
    found: dict[StackedOperand, Stack] = {}
    for summand in _summands(accumulators):
        slices = [_existing(operand, plan.loop) for operand in summand.operands]
        leading = next((stack for stack in slices if stack is not None), None) or _numbering(plan.loop)
        if leading is None:
            return None
        for operand, stack in zip(summand.operands, slices, strict=True):
            if stack is None or stack.is_reversed != leading.is_reversed:
                stack = replace(leading, value=operand.value, element=None)
            if found.setdefault(operand, stack) != stack or plan.stack_of.get(operand, stack) != stack:
                return None  # two products read it in different orders
    return found


def _known_stacks(accumulators: Iterable[Accumulator], plan: MotionPlan) -> dict[StackedOperand, Stack] | None:
    """The stack of each operand, as far as other accumulators need it; None where one of them does not."""
    by_value = {stack.value: stack for stack in plan.stack_of.values()}
    found: dict[StackedOperand, Stack] = {}
    for summand in _summands(accumulators):
        for operand in summand.operands:
            stack = plan.stack_of.get(operand) if summand.is_product else by_value.get(operand.value)
            if stack is None:
                return None
            found[operand] = stack
    return found


def _existing(operand: StackedOperand, loop: CountedLoop) -> Stack | None:
    """The array that an operand is a slice of, outermost in memory."""
    found = loop.stacked_input(operand.value)
    if found is None or operand.value.operands[0].shape.minor_to_major[-1] != found.dimension:
        return None
    index = operand.value.operands[1 + found.dimension]
    return Stack(operand.value, index, found.is_reversed, loop.trips, found.element)


def _numbering(loop: CountedLoop) -> Stack | None:
    """A stack that the induction variable numbers, where it counts from 0 on."""
    number = loop.induction_element
    elements = (n for n in loop.body.nodes if is_parameter_element(n) and n.proto.tuple_index == number)
    element = next(elements, None)
    if element is None or not loop.numbers_iterations(element):
        return None
    # XLA copies it where the loop's next value is written over it.
    index = next((user for user in element.users if user.opcode == INSERTED_COPY), element)
    return Stack(element, index, is_reversed=False, trips=loop.trips)
