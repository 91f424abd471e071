"""Loop harness: an extracted region as the body of a `while` loop whose trip count is an argument.

A region that runs in a loop of its program is timed in one: the launch of an executable costs more than a region of a
few microseconds, and a loop amortizes it. Loop-carried values of the region are carried by the harness as well: operand
and result share a buffer, and the copy against the write-after-read hazard is measured with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, set_signature
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto, ModuleProto, ShapeProto
from hlo_dispatch.ir.shape import Shape, row_major, shape_of

BODY = "region"
"""Name of the computation of a region, in a loop harness or alone."""
_COUNTER, _LIMIT, _INPUTS = range(3)
"""Elements of the loop's state: the iteration, the trip count, then inputs and results."""
_COUNT = row_major("s32", ())
_FLAG = row_major("pred", ())
_PARTS = {"c64": row_major("f32", ()), "c128": row_major("f64", ())}


def in_loop(extracted: ExtractedModule) -> ExtractedModule:
    """Build the loop harness: the same inputs and one more, the trip count (s32); the same results."""
    return replace(extracted, module=_Harness(extracted).written())


def result_elements(extracted: ExtractedModule) -> list[int]:
    """For each result, its element of the loop's state: that of the carried input, or a separate one."""
    assert extracted.loop is not None
    input_of = {result: number for number, result in extracted.loop.carried}
    own = iter(range(_INPUTS + len(extracted.inputs), _INPUTS + len(extracted.inputs) + len(extracted.results)))
    count = len(extracted.results)
    return [_INPUTS + input_of[number] if number in input_of else next(own) for number in range(count)]


def input_elements(body: ComputationProto, extracted: ExtractedModule) -> dict[int, InstructionProto]:
    """Number of each input that the loop body reads → its get-tuple-element."""
    state = next(i.id for i in body.instructions if i.opcode == "parameter")
    read = [i for i in body.instructions if i.opcode == "get-tuple-element" and i.operand_ids[0] == state]
    last = _INPUTS + len(extracted.inputs)
    return {i.tuple_index - _INPUTS: i for i in read if _INPUTS <= i.tuple_index < last}


class _Harness:
    """Writer of one loop harness."""

    def __init__(self, extracted: ExtractedModule) -> None:
        self._extracted, self._module = extracted, extracted.module
        self._results = result_elements(extracted)
        self._state = [_COUNT, _COUNT, *extracted.inputs]
        for element, shape in zip(self._results, extracted.results, strict=True):
            if element == len(self._state):
                self._state.append(shape)
        self._last_id = max(self._module.computations)
        self._fused: list[ComputationProto] = []

    def written(self) -> Module:
        body, condition = self._body(), self._condition()
        entry = self._entry(body, condition)
        others = [c for c in self._module.proto.computations if c.id != body.id]
        module = ModuleProto(name="region", entry_computation_name=entry.name, entry_computation_id=entry.id)
        for computation in (*others, *self._fused, body, condition, entry):
            module.computations.add().CopyFrom(computation)
        module.host_program_shape.CopyFrom(entry.program_shape)
        return Module(module)

    def _body(self) -> ComputationProto:
        """The loop body: the region's computation with elements of the loop's state as inputs."""
        region, count = self._module.entry, len(self._extracted.results)
        body = ComputationProto(id=region.id, name=BODY, execution_thread=region.execution_thread)
        writer = _Writer(body, max(i.id for i in region.instructions))
        state = writer.add("parameter", "loop_state", _tuple_shape(self._state))
        elements = {
            number: writer.element(state, number, shape, f"loop_element.{number}")
            for number, shape in enumerate(self._state)
            if number not in set(self._results) - set(range(_INPUTS + len(self._extracted.inputs)))
        }
        renamed: dict[int, int] = {}
        results = [region.root_id]
        for instruction in region.instructions:
            if instruction.opcode == "parameter":
                renamed[instruction.id] = elements[_INPUTS + instruction.parameter_number]
            elif instruction.id == region.root_id and count > 1:
                results = [renamed.get(operand, operand) for operand in instruction.operand_ids]
            else:
                copy = body.instructions.add()
                copy.CopyFrom(instruction)
                for place, operand in enumerate(instruction.operand_ids):
                    copy.operand_ids[place] = renamed.get(operand, operand)
        one = writer.constant("loop_step", 1)
        elements[_COUNTER] = self._fusion(writer, "add", "loop_next", _COUNT, (elements[_COUNTER], one))
        elements |= dict(zip(self._results, self._distinct(writer, results), strict=True))
        parts = [elements[number] for number in range(len(self._state))]
        body.root_id = writer.add("tuple", "loop_next_state", _tuple_shape(self._state), parts)
        _set_state_signature(body, self._state, _tuple_shape(self._state))
        return body

    def _distinct(self, writer: _Writer, results: Sequence[int]) -> list[int]:
        """The results, each in a separate buffer, as XLA's copy insertion leaves them in a loop body."""
        by_id, seen, distinct = writer.by_id(), set[int](), list[int]()
        for number, result in enumerate(results):
            source = by_id[result]
            while source.opcode == "bitcast":
                source = by_id[source.operand_ids[0]]
            if source.id in seen or source.opcode == "constant" or source.name.startswith("loop_element"):
                shape = self._extracted.results[number].to_proto()
                result = writer.add("copy", f"loop_copy.{number}", shape, (result,))
            seen.add(source.id)
            distinct.append(result)
        return distinct

    def _condition(self) -> ComputationProto:
        condition = self._new("loop_condition")
        writer = _Writer(condition)
        state = writer.add("parameter", "condition_state", _tuple_shape(self._state))
        read = [writer.element(state, n, _COUNT, f"condition_element.{n}") for n in (_COUNTER, _LIMIT)]
        condition.root_id = self._fusion(writer, "compare", "loop_goes_on", _FLAG, read)
        _set_state_signature(condition, self._state, _FLAG.to_proto())
        return condition

    def _entry(self, body: ComputationProto, condition: ComputationProto) -> ComputationProto:
        entry, extracted = self._new("loop"), self._extracted
        writer, names = _Writer(entry), ["region_input"] * len(extracted.inputs)
        for instruction in self._module.entry.instructions:
            if instruction.opcode == "parameter":
                # The name marks frozen inputs and triangular matrices.
                names[instruction.parameter_number] = instruction.name.partition(".")[0]
        parameters = [writer.parameter(n, name, extracted.inputs[n]) for n, name in enumerate(names)]
        limit = writer.parameter(len(names), "trip_count", _COUNT)
        carried = {number for number, _ in extracted.loop.carried} if extracted.loop is not None else set[int]()
        begin = [writer.add("copy", "loop_begin", _COUNT.to_proto(), (writer.constant("loop_zero", 0),)), limit]
        for number, parameter in enumerate(parameters):
            shape = extracted.inputs[number].to_proto()
            # The loop overwrites carried values, and the program must not overwrite its arguments.
            is_written = number in carried
            begin.append(writer.add("copy", f"loop_begin.{number}", shape, (parameter,)) if is_written else parameter)
        for number, shape in list(enumerate(self._state))[len(begin) :]:
            begin.append(self._fusion(writer, "broadcast", f"loop_empty.{number}", shape, ()))
        initial = writer.add("tuple", "loop_initial_state", _tuple_shape(self._state), begin)
        loop = writer.add("while", "loop_of_region", _tuple_shape(self._state), (initial,))
        entry.instructions[-1].called_computation_ids.extend((body.id, condition.id))
        parts = [
            writer.element(loop, element, self._state[element], f"loop_region_result.{number}")
            for number, element in enumerate(self._results)
        ]
        if len(parts) > 1:
            parts = [writer.add("tuple", "loop_region_results", _tuple_shape(extracted.results), parts)]
        entry.root_id, result = parts[0], writer.by_id()[parts[0]].shape
        set_signature(entry, [*extracted.inputs, _COUNT], result)
        return entry

    def _new(self, name: str) -> ComputationProto:
        self._last_id += 1
        return ComputationProto(id=self._last_id, name=name, execution_thread=self._module.entry.execution_thread)

    def _fusion(self, writer: _Writer, opcode: str, name: str, result: Shape, operands: Sequence[int]) -> int:
        """Add a loop fusion of one operation (a broadcast has no operand and gives zeros); returns its id."""
        computation = self._new(f"{name}_computation")
        inner = _Writer(computation)
        by_id = writer.by_id()
        shapes = [shape_of(by_id[operand].shape) for operand in operands]
        read = [inner.parameter(number, f"{name}_operand", shape) for number, shape in enumerate(shapes)]
        if opcode == "broadcast":
            read = [_zero(inner, name, result.element_type)]
        computation.root_id = inner.add(opcode, f"{name}_{opcode}", result.to_proto(), read)
        if opcode == "compare":
            computation.instructions[-1].comparison_direction = "LT"
        set_signature(computation, shapes, result.to_proto())
        self._fused.append(computation)
        fusion = writer.add("fusion", name, result.to_proto(), operands)
        writer.computation.instructions[-1].fusion_kind = "kLoop"
        writer.computation.instructions[-1].called_computation_ids.append(computation.id)
        return fusion


def _zero(writer: _Writer, name: str, element_type: str) -> int:
    """Add a scalar zero of any type; returns its id."""
    zero = writer.constant(f"{name}_zero", 0)
    if element_type in _PARTS:
        part = writer.add("convert", f"{name}_part", _PARTS[element_type].to_proto(), (zero,))
        return writer.add("complex", f"{name}_complex", row_major(element_type, ()).to_proto(), (part, part))
    if element_type == _COUNT.element_type:
        return zero
    return writer.add("convert", f"{name}_convert", row_major(element_type, ()).to_proto(), (zero,))


def _set_state_signature(computation: ComputationProto, state: Sequence[Shape], result: ShapeProto) -> None:
    computation.program_shape.parameters.add().CopyFrom(_tuple_shape(state))
    computation.program_shape.parameter_names.append("loop_state")
    computation.program_shape.result.CopyFrom(result)


def _tuple_shape(shapes: Sequence[Shape]) -> ShapeProto:
    shape = ShapeProto(element_type=ELEMENT_TYPE_NUMBERS["tuple"])
    shape.tuple_shapes.extend(part.to_proto() for part in shapes)
    return shape


class _Writer:
    """Builder of a computation; each method adds an instruction and returns its id."""

    def __init__(self, computation: ComputationProto, last_id: int = 0) -> None:
        self.computation = computation
        self._last_id = last_id or computation.id << 32

    def add(self, opcode: str, name: str, shape: ShapeProto, operands: Sequence[int] = ()) -> int:
        self._last_id += 1
        proto = self.computation.instructions.add(opcode=opcode, name=name, id=self._last_id)
        proto.shape.CopyFrom(shape)
        proto.operand_ids.extend(operands)
        return proto.id

    def parameter(self, number: int, name: str, shape: Shape) -> int:
        identifier = self.add("parameter", f"{name}.{number}", shape.to_proto())
        self.computation.instructions[-1].parameter_number = number
        return identifier

    def element(self, value: int, index: int, shape: Shape, name: str) -> int:
        identifier = self.add("get-tuple-element", name, shape.to_proto(), (value,))
        self.computation.instructions[-1].tuple_index = index
        return identifier

    def constant(self, name: str, value: int) -> int:
        identifier = self.add("constant", name, _COUNT.to_proto())
        literal = self.computation.instructions[-1].literal
        literal.shape.CopyFrom(_COUNT.to_proto())
        literal.s32s.append(value)
        return identifier

    def by_id(self) -> dict[int, InstructionProto]:
        return {i.id: i for i in self.computation.instructions}
