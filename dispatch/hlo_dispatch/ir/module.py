"""Module: a parsed HloModuleProto with its computations by id, and fresh ids and names.

The protobuf message *is* the module; this class adds indexes, and ids and names that cannot collide with XLA's.
The package reads repeated fields as slices (`operand_ids[:]`): protobuf ends every other iteration over one with an
exception, which costs more than the iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from google.protobuf.message import DecodeError

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.ir.opcode import CALLS_NOTHING, CONTROL_FLOW
from hlo_dispatch.ir.schema import MODULE_FIELDS, ComputationProto, InstructionProto, ModuleProto
from hlo_dispatch.ir.submessages import submessages
from hlo_dispatch.process.native import native

_COMPUTATIONS = MODULE_FIELDS["computations"]
# A computation called with this frontend attribute runs on XLA's legacy emitter, which has no custom-calls.
SMALL_CALL = "xla_cpu_small_call"


class Computations(dict[int, ComputationProto]):
    """The computations of a module by id."""

    def __missing__(self, identifier: int) -> ComputationProto:
        raise ModuleError(f"computation {identifier} is called and not there")


class Module:
    """A parsed `HloModuleProto` with its computations by id."""

    def __init__(self, proto: ModuleProto, attributes: dict[str, Attributes] | None = None) -> None:
        """`attributes`: of the kernel calls that passes have made, by text."""
        self.proto = proto
        self._attributes: dict[str, Attributes] = {} if attributes is None else attributes
        self.computations = Computations()
        """By id, callees before callers."""
        self._opcodes: frozenset[str] | None = None
        self._opcodes_of: dict[int, frozenset[str]] = {}
        """Id of a computation → its opcodes, where they are known."""
        self._source: bytes | None = None
        """The message as it was parsed; None: it has changed, or was never in this form."""
        self._messages: dict[int, bytes] = {}
        """Id of a computation → its part of that, where every edit is committed."""
        self._control_flow: list[tuple[ComputationProto, bool]] | None = None
        self.index()
        self._names: set[str] = set()
        self._last_number: dict[str, int] = {}
        self._last_instruction: dict[int, int] = {}
        """Id of a computation → the highest id of its instructions, ids that are not used yet included."""
        self._last_computation = 0

    @classmethod
    def from_bytes(cls, serialized: bytes, *, commits_edits: bool = False) -> Module:
        """Parse a serialized HloModuleProto.

        Args:
            commits_edits: whether nothing edits its messages but what commits that, as the passes do: computations are
                not serialized again before the first edit.

        Raises:
            ModuleError: the bytes are not a module, or the module has no entry computation.
        """
        proto = ModuleProto()
        try:
            proto.ParseFromString(serialized)
        except DecodeError as error:
            raise ModuleError(f"this is not a serialized HloModuleProto ({error})") from None
        module = cls(proto)
        if proto.entry_computation_id not in module.computations:
            raise ModuleError("this is not a serialized HloModuleProto: it has no entry computation")
        module._source = serialized
        parts = submessages(serialized, _COMPUTATIONS) if commits_edits else []
        if len(parts) == len(computations := proto.computations[:]):
            module._messages = {c.id: part for c, part in zip(computations, parts, strict=True)}
        return module

    def to_bytes(self) -> bytes:
        return self.proto.SerializeToString()

    def copy(self) -> Module:
        """A module of its own with the same contents."""
        proto = ModuleProto()
        proto.CopyFrom(self.proto)
        return Module(proto, self._attributes)

    def message(self, computation: ComputationProto) -> bytes:
        """A computation, serialized."""
        return self._messages.get(computation.id) or computation.SerializeToString()

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def entry(self) -> ComputationProto:
        return self.computations[self.proto.entry_computation_id]

    @property
    def instructions(self) -> Iterator[InstructionProto]:
        """The instructions of all computations, callees' first."""
        return (
            instruction for computation in self.proto.computations[:] for instruction in computation.instructions[:]
        )

    @property
    def custom_call_targets(self) -> set[str]:
        return {instruction.custom_call_target for instruction in self.instructions} - {""}

    @property
    def instruction_count(self) -> int:
        """Number of instructions, those inside fusions included."""
        return sum(len(computation.instructions) for computation in self.proto.computations[:])

    @property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of all instructions, those inside fusions included, and perhaps of erased ones."""
        if self._opcodes is None:
            if self._source is not None:
                opcodes_of, names = native().opcodes_and_names(self._source)
                self._names = self._names or names
                if self._messages:  # every edit is committed
                    self._opcodes_of = opcodes_of
            else:
                opcodes_of = {identifier: self.opcodes_of(identifier) for identifier in self.computations}
            self._opcodes = frozenset[str]().union(*set(opcodes_of.values()))
        return self._opcodes

    def opcodes_of(self, identifier: int) -> frozenset[str]:
        """The opcodes of a computation's instructions, without those inside fusions."""
        found = self._opcodes_of.get(identifier)
        if found is None:
            found = frozenset([instruction.opcode for instruction in self.computations[identifier].instructions[:]])
            self._opcodes_of[identifier] = found
        return found

    def control_flow_computations(self) -> Sequence[tuple[ComputationProto, bool]]:
        """The entry and every computation reached from it through while, conditional and call, callees first.

        Each is a (computation, small): `small` says that it may not hold custom-calls. Reached both ways, a
        computation counts as small.
        """
        if self._control_flow is None:
            small = self._reached_by_control_flow()
            self._control_flow = [
                (c, small[identifier]) for identifier, c in self.computations.items() if identifier in small
            ]
        return self._control_flow

    def _reached_by_control_flow(self) -> dict[int, bool]:
        """Id of a computation → whether it may not hold custom-calls."""
        small: dict[int, bool] = {}
        pending = [(self.proto.entry_computation_id, False)]
        has_control_flow = not self.opcodes.isdisjoint(CONTROL_FLOW)
        while pending:
            identifier, is_small = pending.pop()
            if identifier in small and (small[identifier] or not is_small):
                continue
            small[identifier] = is_small
            if not has_control_flow or self.opcodes_of(identifier).isdisjoint(CONTROL_FLOW):
                continue
            for instruction in self.computations[identifier].instructions[:]:
                if instruction.opcode in CONTROL_FLOW:
                    inner = is_small or is_small_call(instruction)
                    pending += [(called, inner) for called in instruction.called_computation_ids[:]]
        return small

    def index(self, added: AbstractSet[str] | None = None, changed: Collection[int] = ()) -> None:
        """Update what is known of the message, which has changed.

        Args:
            added: opcodes of the instructions that are new; None: unknown.
            changed: ids of the computations that are not what they were, where the opcodes are known.
        """
        if added is None:
            self._opcodes_of = {}
        for identifier in changed:
            self._opcodes_of.pop(identifier, None)
        self.computations = Computations({c.id: c for c in self.proto.computations[:]})
        self._opcodes = None if added is None or self._opcodes is None else self._opcodes | added
        self._control_flow = self._source = None
        self._messages = {}

    def reached(self) -> set[int]:
        """Ids of the computations that the entry calls, directly or not, and its own."""
        found = {self.proto.entry_computation_id}
        pending = list(found)
        while pending:
            identifier = pending.pop()
            if self.opcodes_of(identifier) <= CALLS_NOTHING:
                continue
            for instruction in self.computations[identifier].instructions[:]:
                for called in () if instruction.opcode in CALLS_NOTHING else instruction.called_computation_ids[:]:
                    if called not in found:
                        found.add(called)
                        pending.append(called)
        return found

    def kernel_call(self, instruction: InstructionProto) -> KernelCall:
        """The kernel call of an instruction; the attributes of a call that a pass made are not parsed."""
        return KernelCall.read(instruction, self._attributes)

    def write(self, call: KernelCall, instruction: InstructionProto) -> None:
        """Make an instruction a kernel call."""
        self._attributes[call.attributes.text] = call.attributes
        call.write(instruction)

    def fresh_computation_id(self) -> int:
        """An id that no computation of the module has."""
        self._last_computation = (self._last_computation or max(self.computations)) + 1
        return self._last_computation

    def fresh_id(self, computation: ComputationProto) -> int:
        """An id that no instruction of the computation has; the computation may be a new one."""
        last = self._last_instruction.get(computation.id)
        if last is None:
            last = max((i.id for i in computation.instructions[:]), default=(computation.id << 32) - 1)
        self._last_instruction[computation.id] = last + 1
        return last + 1

    def fresh_name(self, stem: str) -> str:
        """`stem`, or `stem.1`, `stem.2` … : a name that nothing in the module has."""
        if not self._names:
            self._names = {instruction.name for instruction in self.instructions}
            self._names.update(c.name for c in self.proto.computations[:])
        # The search starts at the stem's last number: thousands of parameters share one stem.
        number = self._last_number.get(stem, -1) + 1
        name = f"{stem}.{number}" if number else stem
        while name in self._names:
            number += 1
            name = f"{stem}.{number}"
        self._last_number[stem] = number
        self._names.add(name)
        return name


def copy_of(instruction: InstructionProto) -> InstructionProto:
    """A copy that belongs to no computation yet, and may be changed."""
    copy = InstructionProto()
    copy.CopyFrom(instruction)
    return copy


def is_small_call(instruction: InstructionProto) -> bool:
    """Whether XLA hoisted what this `call` calls into a small call."""
    return any(entry.key == SMALL_CALL and entry.value == "true" for entry in instruction.frontend_attributes.map)
