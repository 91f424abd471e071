"""Instruction builder: makes the instructions of one computation, with fresh ids and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, LiteralProto, ShapeProto
from hlo_dispatch.ir.shape import Shape, tuple_shape


class InstructionBuilder:
    """Makes instructions and adds each to a computation: at its end, or where an editor's builder stands.

    Operands are ids. Each method takes the stem of the instruction's name, by default its opcode.
    """

    def __init__(
        self,
        module: Module,
        computation: ComputationProto,
        add: Callable[[InstructionProto], None] | None = None,
        origin: InstructionProto | None = None,
    ) -> None:
        """
        Args:
            add: adds an instruction to a draft of the computation; None: to the computation itself, at its end.
            origin: an instruction whose source location the new ones have.
        """
        self.module, self.computation, self._add = module, computation, add
        self._origin = origin if origin is not None and origin.HasField("metadata") else None

    @classmethod
    def of_new_computation(cls, module: Module, stem: str, like: ComputationProto) -> InstructionBuilder:
        """A builder of a computation that is not in the module yet; it runs on the thread of another one."""
        return cls(
            module,
            ComputationProto(
                id=module.fresh_computation_id(),
                name=module.fresh_name(stem),
                execution_thread=like.execution_thread,
            ),
        )

    def finished(self, root: int) -> ComputationProto:
        """The computation, with this instruction as its root."""
        self.computation.root_id = root
        return self.computation

    def fresh_id(self) -> int:
        """An id for an instruction that is made later."""
        return self.module.fresh_id(self.computation)

    def add(self, instruction: InstructionProto) -> InstructionProto:
        """Add an instruction; returns the one in the computation."""
        if self._add is not None:
            self._add(instruction)
            return instruction
        self.computation.instructions.append(instruction)
        return self.computation.instructions[-1]

    def make(
        self, opcode: str, shape: Shape | ShapeProto, *operands: int, stem: str = "", identifier: int | None = None
    ) -> InstructionProto:
        """An instruction of any opcode, without the fields that only this opcode has.

        Args:
            identifier: its id, taken from `fresh_id` before.
        """
        return self.add(self._new(opcode, shape, operands, stem, identifier))

    def _new(
        self, opcode: str, shape: Shape | ShapeProto | None, operands: Sequence[int], stem: str, identifier: int | None
    ) -> InstructionProto:
        made = InstructionProto()  # a constructor with fields takes longer
        made.opcode = opcode
        made.id = self.fresh_id() if identifier is None else identifier
        made.name = self.module.fresh_name(stem or opcode)
        made.operand_ids.extend(operands)
        if shape is not None:
            made.shape.CopyFrom(shape.to_proto() if isinstance(shape, Shape) else shape)
        if self._origin is not None:
            made.metadata.CopyFrom(self._origin.metadata)
        return made

    def parameter(
        self, number: int, shape: Shape | ShapeProto, stem: str = "", identifier: int | None = None
    ) -> InstructionProto:
        made = self.make("parameter", shape, stem=stem, identifier=identifier)
        made.parameter_number = number
        return made

    def constant(self, shape: Shape, literal: LiteralProto, stem: str = "") -> InstructionProto:
        made = self.make("constant", shape, stem=stem)
        made.literal.CopyFrom(literal)
        return made

    def tuple(self, operands: Sequence[int], shapes: Sequence[ShapeProto], stem: str = "") -> InstructionProto:
        return self.make("tuple", tuple_shape(shapes), *operands, stem=stem)

    def get_tuple_element(
        self, operand: int, index: int, shape: Shape | ShapeProto, stem: str = "", identifier: int | None = None
    ) -> InstructionProto:
        made = self.make("get-tuple-element", shape, operand, stem=stem, identifier=identifier)
        made.tuple_index = index
        return made

    def concatenate(
        self, operands: Sequence[int], shape: Shape, stem: str = "", dimension: int = 0
    ) -> InstructionProto:
        made = self.make("concatenate", shape, *operands, stem=stem)
        made.dimensions.append(dimension)
        return made

    def slice(self, operand: int, shape: Shape, start: Sequence[int], stem: str = "") -> InstructionProto:
        """A slice of this shape, with stride 1, from these indices on."""
        made = self.make("slice", shape, operand, stem=stem)
        for begin, size in zip(start, shape.dimensions, strict=True):
            made.slice_dimensions.add(start=begin, limit=begin + size, stride=1)
        return made

    def fusion(
        self,
        computation: ComputationProto,
        operands: Sequence[int],
        shape: Shape | ShapeProto,
        *,
        stem: str = "",
        kind: str = "kLoop",
        config: bytes = b"",
        identifier: int | None = None,
    ) -> InstructionProto:
        """A fusion of a computation that nothing else calls."""
        made = self.make("fusion", shape, *operands, stem=stem, identifier=identifier)
        made.fusion_kind, made.backend_config = kind, config
        made.called_computation_ids.append(computation.id)
        return made

    def kernel_call(self, call: KernelCall, stem: str = "", identifier: int | None = None) -> InstructionProto:
        made = self._new("custom-call", None, (), stem, identifier)
        self.module.write(call, made)
        return self.add(made)

    def clone(
        self,
        original: InstructionProto,
        operands: Sequence[int],
        control_predecessors: Sequence[int] = (),
        identifier: int | None = None,
    ) -> InstructionProto:
        """A copy with other operands, under a new id and name."""
        made = copy_of(original)
        made.id = self.fresh_id() if identifier is None else identifier
        made.name = self.module.fresh_name(original.name)
        made.operand_ids[:] = operands
        made.control_predecessor_ids[:] = control_predecessors
        return self.add(made)

    def clone_all(self, originals: Iterable[InstructionProto], ids: dict[int, int]) -> list[ComputationProto]:
        """Clone instructions, operands before users, together with the computations that they call.

        Args:
            ids: id of an original → id of its clone; the operands' that have one already, and then all.

        Returns:
            the new computations, callees first.
        """
        computations: list[ComputationProto] = []
        for original in originals:
            if original.id in ids:
                continue
            operands, predecessors = original.operand_ids[:], original.control_predecessor_ids[:]
            clone = self.clone(original, [ids[o] for o in operands], [ids[o] for o in predecessors])
            ids[original.id] = clone.id
            for number, called in enumerate(clone.called_computation_ids[:]):
                if called in self.module.computations:
                    computations += clone_computation(self.module, self.module.computations[called])
                    clone.called_computation_ids[number] = computations[-1].id
        return computations


def clone_computation(module: Module, computation: ComputationProto) -> list[ComputationProto]:
    """Clones of a computation and of all that it calls, callees first, itself last; not in the module yet."""
    builder = InstructionBuilder.of_new_computation(module, computation.name, computation)
    ids: dict[int, int] = {}
    callees = builder.clone_all(computation.instructions[:], ids)
    return [*callees, builder.finished(ids[computation.root_id])]
