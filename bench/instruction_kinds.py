"""Kinds of instructions: what an executable's module spends its time on, said of each instruction.

A fusion is what it holds. Attention is found by its dataflow: batched products before and behind an exponential. A
slice of a carried buffer that the same computation updates belongs to that buffer's kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from hlo_dispatch.ir.kernel_call import is_kernel_call
from hlo_dispatch.ir.module import Module, is_small_call
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

PRODUCTS = "products"
SLICES = "slices of stacked arrays"
UPDATES = "buffers: slices, updates, copies"
"""Of buffers that are updated in place, a cache or a loop's stacked results."""
ATTENTION = "attention"
NORMS = "norms and softmax"
COPIES = "copies and conversions"
ELEMENTWISE_KIND = "elementwise"
SMALL_CALLS = "small calls"
REST = "rest"
KINDS: tuple[str, ...] = (PRODUCTS, SLICES, UPDATES, ATTENTION, NORMS, ELEMENTWISE_KIND, COPIES, SMALL_CALLS, REST)

_KERNELS = {
    "argmax": REST,
    "attention": ATTENTION,
    "bincount": REST,
    "binary": ELEMENTWISE_KIND,
    "channel_scaling": NORMS,
    "channel_sums": NORMS,
    "concat": COPIES,
    "cumulative_logsumexp": REST,
    "cumulative_maximum": REST,
    "cumulative_minimum": REST,
    "cumulative_product": REST,
    "cumulative_sum": REST,
    "gathered_sums": REST,
    "group_norm": NORMS,
    "layer_norm": NORMS,
    "pack": COPIES,
    "pooling": REST,
    "row_sums": REST,
    "searchsorted": REST,
    "softmax": NORMS,
    "squared_distances": REST,
    "threefry2x32": REST,
}
"""Last word of a kernel's target → its kind; every other kernel is a product or a solver."""
_SOLVERS = (
    "cholesky",
    "eigh",
    "fft",
    "householder_product",
    "lu",
    "qr",
    "svd",
    "triangular_solve",
    "huge_pages",
    "sort",
    "sort_with_places",
    "top_k",
)
_MOVES = frozenset("bitcast broadcast constant convert copy get-tuple-element iota parameter reshape transpose".split())
_SLICES = _MOVES | {"dynamic-slice", "slice", "tuple"}
_STREAMS = ELEMENTWISE | _MOVES | frozenset("concatenate pad reverse slice tuple".split())
_PRODUCTS = frozenset(("dot", "convolution"))


def kernel_kind(target: str) -> str:
    """Kind of a kernel, by its custom-call target."""
    word = target.rpartition(".")[2]
    return REST if word in _SOLVERS else _KERNELS.get(word, PRODUCTS)


def instruction_kinds(module: Module) -> dict[str, str]:
    """Instruction's name → its kind, in all computations that control flow reaches."""
    contents = _Contents(module)
    updated = {
        _dimensions(instruction)
        for computation in module.proto.computations[:]
        for instruction in computation.instructions[:]
        if instruction.opcode == "dynamic-update-slice"
    }
    kinds: dict[str, str] = {}
    for computation, _ in module.control_flow_computations():
        kinds.update(_ComputationKinds(computation, contents, updated).kinds)
    return kinds


class _Contents:
    """Instructions inside of an instruction: a fusion's, a small call's, or itself."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._found: dict[str, list[InstructionProto]] = {}

    def of(self, instruction: InstructionProto) -> list[InstructionProto]:
        if instruction.opcode != "fusion" and not is_small_call(instruction):
            return [instruction]
        if instruction.name not in self._found:
            found: list[InstructionProto] = []
            pending = instruction.called_computation_ids[:]
            while pending:
                for inner in self._module.computations[pending.pop()].instructions[:]:
                    found.append(inner)
                    if inner.opcode not in ("reduce", "reduce-window", "sort", "scatter", "map"):
                        pending += inner.called_computation_ids[:]
            self._found[instruction.name] = found
        return self._found[instruction.name]


class _ComputationKinds:
    """Kinds of one computation's instructions."""

    def __init__(self, computation: ComputationProto, contents: _Contents, updated: set[tuple[int, ...]]) -> None:
        self._contents, self._updated = contents, updated
        self._instructions = {instruction.id: instruction for instruction in computation.instructions[:]}
        self._opcodes = {number: self._opcodes_of(one) for number, one in self._instructions.items()}
        self._users: Mapping[int, list[int]] = defaultdict(list)
        for number, instruction in self._instructions.items():
            for operand in instruction.operand_ids[:]:
                self._users[operand].append(number)
        self._operands = {number: i.operand_ids[:] for number, i in self._instructions.items()}
        self._attention = self._attention_instructions()
        self.kinds = {instruction.name: self._kind(instruction) for instruction in self._instructions.values()}

    def _opcodes_of(self, instruction: InstructionProto) -> set[str]:
        """Opcodes inside of it; arithmetic on scalars computes indices."""
        inside = self._contents.of(instruction)
        arrays = {one.opcode for one in inside if one.shape.dimensions or one.opcode not in ELEMENTWISE}
        return arrays if not arrays <= {"parameter", "constant"} else {one.opcode for one in inside}

    def _kind(self, instruction: InstructionProto) -> str:
        opcodes = self._opcodes[instruction.id]
        if instruction.custom_call_target:
            return kernel_kind(instruction.custom_call_target) if is_kernel_call(instruction) else REST
        if is_small_call(instruction):
            return PRODUCTS if opcodes & _PRODUCTS else SMALL_CALLS
        if instruction.id in self._attention:
            return ATTENTION
        if opcodes & _PRODUCTS:
            return PRODUCTS
        if "dynamic-update-slice" in opcodes or self._moves_updated(instruction):
            return UPDATES
        if "dynamic-slice" in opcodes and opcodes <= _SLICES:
            return UPDATES if self._is_updated_slice(instruction) else SLICES
        return self._kind_of_arithmetic(instruction)

    def _kind_of_arithmetic(self, instruction: InstructionProto) -> str:
        opcodes = self._opcodes[instruction.id]
        if opcodes & {"rsqrt", "sqrt"} or self._is_sum_of_norm(instruction):
            return NORMS
        if opcodes <= _MOVES:
            return COPIES
        return ELEMENTWISE_KIND if opcodes <= _STREAMS | {"dynamic-slice"} else REST

    def _moves_updated(self, instruction: InstructionProto) -> bool:
        """Whether it copies, converts or fills an array like one that is updated, or what an update gave."""
        if not self._opcodes[instruction.id] <= _MOVES:
            return False
        given = self._operands[instruction.id]
        return _dimensions(instruction) in self._updated or any(
            "dynamic-update-slice" in self._opcodes[operand] for operand in given
        )

    def _is_updated_slice(self, instruction: InstructionProto) -> bool:
        """Whether what it slices is like an array that is updated, or is updated next."""
        inside = {one.id: one for one in self._contents.of(instruction)}
        sliced = [one.operand_ids[0] for one in inside.values() if one.opcode == "dynamic-slice"]
        arrays = [inside.get(number) or self._instructions[number] for number in sliced]
        return any(_dimensions(array) in self._updated for array in arrays) or any(
            "dynamic-update-slice" in self._opcodes[user] for user in self._users[instruction.id]
        )

    def _is_sum_of_norm(self, instruction: InstructionProto) -> bool:
        """Whether its sums, and squares before them, lead to a reciprocal root within two steps."""
        near = self._users[instruction.id]
        reached = {*near, *(further for user in near for further in self._users[user])}
        return any(self._opcodes[number] & {"rsqrt", "sqrt"} for number in reached) and all(
            self._opcodes[number] & {"rsqrt", "sqrt", "reduce", "reduce-window"} for number in near
        )

    def _attention_instructions(self) -> set[int]:
        """Batched products around an exponential, and what lies between them."""
        exponentials = [number for number, opcodes in self._opcodes.items() if "exponential" in opcodes]
        before, scores = self._reach(exponentials, self._operands)
        if not scores:
            return set()
        behind, values = self._reach(scores, self._users)
        back, _ = self._reach(values, self._operands)
        forth, _ = self._reach([number for number in exponentials if number in behind], self._users)
        between = (before & behind) | (behind & back) | (forth & back)
        return scores | values | {number for number in between if not self._opcodes[number] & _PRODUCTS}

    def _reach(self, begin: Iterable[int], edges: Mapping[int, list[int]]) -> tuple[set[int], set[int]]:
        """What lies beyond these up to the next products, and which batched products those are."""
        found: set[int] = set()
        ends: set[int] = set()
        pending = [number for start in begin for number in edges.get(start, ())]
        while pending:
            number = pending.pop()
            if number in found or number in ends:
                continue
            if self._opcodes[number] & _PRODUCTS or self._instructions[number].custom_call_target:
                if self._is_batched(number):
                    ends.add(number)
                continue
            found.add(number)
            pending += edges.get(number, ())
        return found | set(begin), ends

    def _is_batched(self, number: int) -> bool:
        inner = self._contents.of(self._instructions[number])
        return any(i.opcode == "dot" and i.dot_dimension_numbers.lhs_batch_dimensions[:] for i in inner)


def _dimensions(instruction: InstructionProto) -> tuple[int, ...]:
    return tuple(instruction.shape.dimensions[:])
