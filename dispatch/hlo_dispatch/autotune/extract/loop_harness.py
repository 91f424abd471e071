"""Loop harness: an extracted region as the body of a `while` loop whose trip count is an argument.

A region that runs in a loop of its program is timed in one: the launch of an executable costs more than a region of a
few microseconds, and a loop amortizes it. Loop-carried values of the region are carried by the harness as well: operand
and result share a buffer, and the copy against the write-after-read hazard is measured with the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, set_signature
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, LiteralProto, ShapeProto
from hlo_dispatch.ir.shape import Shape, row_major, tuple_shape

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
        self._extracted, self._module = extracted, extracted.module.copy()
        self._results = result_elements(extracted)
        self._state = [_COUNT, _COUNT, *extracted.inputs]
        for element, shape in zip(self._results, extracted.results, strict=True):
            if element == len(self._state):
                self._state.append(shape)
        self._state_shape = tuple_shape(shape.to_proto() for shape in self._state)
        self._fused: list[ComputationProto] = []

    def written(self) -> Module:
        module, body = self._module, self._module.entry
        names = self._input_names()
        self._become_body(body)
        condition = self._condition()
        entry = self._entry(names, body, condition)
        computations = [*self._fused, condition, entry]
        module.proto.computations.extend(computations)
        # Callees come first.
        last = [c.id for c in (body, *computations[-2:])]
        module.proto.computations.sort(key=lambda c: last.index(c.id) if c.id in last else -1)
        module.proto.entry_computation_name, module.proto.entry_computation_id = entry.name, entry.id
        module.proto.host_program_shape.CopyFrom(entry.program_shape)
        module.index()
        return module

    def _input_names(self) -> list[str]:
        """Name of each input, which marks frozen ones and triangular matrices."""
        names = ["region_input"] * len(self._extracted.inputs)
        for instruction in self._module.entry.instructions[:]:
            if instruction.opcode == "parameter":
                names[instruction.parameter_number] = instruction.name.partition(".")[0]
        return names

    def _become_body(self, region: ComputationProto) -> None:
        """Make the region's computation the loop body, with elements of the loop's state as inputs."""
        editor = Editor(self._module, region)
        first, last, root = editor.first(), editor.last(), editor.root
        inputs = editor.parameters()
        state = first.parameter(0, self._state_shape, "loop_state").id
        elements = {
            number: first.get_tuple_element(state, number, shape, f"loop_element.{number}").id
            for number, shape in enumerate(self._state)
            if number not in set(self._results) - set(range(_INPUTS + len(self._extracted.inputs)))
        }
        for parameter in inputs:
            editor.replace_all_uses_with(parameter.id, elements[_INPUTS + parameter.parameter_number])
            editor.erase(parameter.id)
        results = [editor.root_id]
        if len(self._extracted.results) > 1:
            results = editor.root.operand_ids[:]
            editor.erase(root.id)
        one = _integer(last, "loop_step", 1)
        elements[_COUNTER] = self._fusion(last, "add", "loop_next", _COUNT, {elements[_COUNTER]: _COUNT, one: _COUNT})
        elements |= dict(zip(self._results, self._distinct(editor, results), strict=True))
        parts = [elements[number] for number in range(len(self._state))]
        editor.root_id = last.make("tuple", self._state_shape, *parts, stem="loop_next_state").id
        editor.computations, self._fused = self._fused, []
        commit(self._module, [editor])
        self._set_state_signature(region, self._state_shape)

    def _distinct(self, editor: Editor, results: Sequence[int]) -> list[int]:
        """The results, each in a separate buffer, as XLA's copy insertion leaves them in a loop body."""
        seen, distinct = set[int](), list[int]()
        for number, result in enumerate(results):
            source = editor.instructions[result]
            while source.opcode == "bitcast":
                source = editor.instructions[source.operand_ids[0]]
            if source.id in seen or source.opcode == "constant" or source.name.startswith("loop_element"):
                shape = self._extracted.results[number]
                result = editor.last().make("copy", shape, result, stem=f"loop_copy.{number}").id
            seen.add(source.id)
            distinct.append(result)
        return distinct

    def _condition(self) -> ComputationProto:
        builder = self._new("loop_condition")
        state = builder.parameter(0, self._state_shape, "condition_state").id
        counts = {
            builder.get_tuple_element(state, n, _COUNT, f"condition_element.{n}").id: _COUNT for n in (_COUNTER, _LIMIT)
        }
        condition = builder.finished(self._fusion(builder, "compare", "loop_goes_on", _FLAG, counts))
        self._set_state_signature(condition, _FLAG.to_proto())
        return condition

    def _entry(self, names: Sequence[str], body: ComputationProto, condition: ComputationProto) -> ComputationProto:
        builder, extracted = self._new("loop"), self._extracted
        parameters = [builder.parameter(n, extracted.inputs[n], f"{name}.{n}").id for n, name in enumerate(names)]
        limit = builder.parameter(len(names), _COUNT, f"trip_count.{len(names)}").id
        carried = {number for number, _ in extracted.loop.carried} if extracted.loop is not None else set[int]()
        begin = [builder.make("copy", _COUNT, _integer(builder, "loop_zero", 0), stem="loop_begin").id, limit]
        for number, parameter in enumerate(parameters):
            # The loop overwrites carried values, and the program must not overwrite its arguments.
            if number in carried:
                parameter = builder.make("copy", extracted.inputs[number], parameter, stem=f"loop_begin.{number}").id
            begin.append(parameter)
        for number, shape in list(enumerate(self._state))[len(begin) :]:
            begin.append(self._fusion(builder, "broadcast", f"loop_empty.{number}", shape, {}))
        initial = builder.make("tuple", self._state_shape, *begin, stem="loop_initial_state")
        loop = builder.make("while", self._state_shape, initial.id, stem="loop_of_region")
        loop.called_computation_ids.extend((body.id, condition.id))
        parts = [
            builder.get_tuple_element(loop.id, element, self._state[element], f"loop_region_result.{number}")
            for number, element in enumerate(self._results)
        ]
        root = parts[0]
        if len(parts) > 1:
            root = builder.tuple([part.id for part in parts], [part.shape for part in parts], "loop_region_results")
        entry = builder.finished(root.id)
        set_signature(entry, [*extracted.inputs, _COUNT], root.shape)
        return entry

    def _new(self, name: str) -> InstructionBuilder:
        return InstructionBuilder.of_new_computation(self._module, name, self._module.entry)

    def _fusion(
        self, builder: InstructionBuilder, opcode: str, name: str, result: Shape, operands: Mapping[int, Shape]
    ) -> int:
        """Add a loop fusion of one operation (a broadcast has no operand and gives zeros); returns its id."""
        inner = self._new(f"{name}_computation")
        shapes = [*operands.values()]
        read = [inner.parameter(number, shape, f"{name}_operand.{number}").id for number, shape in enumerate(shapes)]
        if opcode == "broadcast":
            read = [_zero(inner, name, result.element_type)]
        computed = inner.make(opcode, result, *read, stem=f"{name}_{opcode}")
        if opcode == "compare":
            computed.comparison_direction = "LT"
        computation = inner.finished(computed.id)
        set_signature(computation, shapes, result.to_proto())
        self._fused.append(computation)
        return builder.fusion(computation, [*operands], result, stem=name).id

    def _set_state_signature(self, computation: ComputationProto, result: ShapeProto) -> None:
        computation.ClearField("program_shape")
        computation.program_shape.parameters.add().CopyFrom(self._state_shape)
        computation.program_shape.parameter_names.append("loop_state")
        computation.program_shape.result.CopyFrom(result)


def _zero(builder: InstructionBuilder, name: str, element_type: str) -> int:
    """Add a scalar zero of any type; returns its id."""
    zero, shape = _integer(builder, f"{name}_zero", 0), row_major(element_type, ())
    if element_type in _PARTS:
        part = builder.make("convert", _PARTS[element_type], zero, stem=f"{name}_part").id
        return builder.make("complex", shape, part, part, stem=f"{name}_complex").id
    if element_type == _COUNT.element_type:
        return zero
    return builder.make("convert", shape, zero, stem=f"{name}_convert").id


def _integer(builder: InstructionBuilder, name: str, value: int) -> int:
    """Add an integer constant; returns its id."""
    return builder.constant(_COUNT, LiteralProto(shape=_COUNT.to_proto(), s32s=[value]), name).id
