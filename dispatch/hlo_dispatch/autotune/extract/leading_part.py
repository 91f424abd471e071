"""Leading part of a program: its first instructions, for the whole-program trials of one that repeats them.

XLA compiles an unrolled model of many equal layers instruction by instruction, and a trial compiles it several times.
What the first layers show holds for the others. The part ends where it has had three times nearly everything that the
program spends its time in; its results are the values that the rest of the program reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hlo_dispatch.analysis.overwritten_parameters import keep_inputs
from hlo_dispatch.analysis.peeling import PEEL_RENAMES, peel_instruction
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.writer import row_major_results
from hlo_dispatch.autotune.run.running_time import RunningTimes
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.entry_parameters import update_signature
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of

FEWEST_INSTRUCTIONS = 1000
"""Size of a program, those inside fusions included, from which its leading part may stand for it."""
REPRESENTED = 0.8
"""Fraction of the program's estimated time in instructions of which the part has at least REPETITIONS equal ones."""
REPETITIONS = 3
LARGEST_PART = 0.5
"""Largest fraction of the program's estimated time that the part may take."""
LEAST_BYTES = 64 << 20
"""Bytes that the part reads from its inputs at least: no cache holds them from one run to the next."""


def leading_part(module: Module, fewest: int = FEWEST_INSTRUCTIONS, least_bytes: int = LEAST_BYTES) -> Module | None:
    """The leading part of a program; None where it does not repeat itself, or is small anyway.

    Args:
        fewest: as FEWEST_INSTRUCTIONS.
        least_bytes: as LEAST_BYTES.
    """
    instructions = module.entry.instructions[:]
    read = sum(shape_of(i.shape).bytes for i in instructions if i.opcode == "parameter")
    if module.instruction_count < fewest or read < least_bytes:
        return None
    end = _end(module, instructions, least_bytes)
    return None if end is None else _cut(module, instructions, end)


def _end(module: Module, instructions: Sequence[InstructionProto], least_bytes: int) -> int | None:
    """Number of instructions of the leading part; None: it has none."""
    digests, by_id = Digests(module), {i.id: i for i in instructions}
    times = RunningTimes(module, digest_of=digests.of_computation)
    seconds, kinds, total = list[float](), list[tuple[bytes, ...]](), 0.0
    time_of = defaultdict[tuple[bytes, ...], float](float)
    for instruction in instructions:
        took = times.of([instruction], by_id)
        if took is None:
            return None
        operands = (by_id[operand].shape.SerializeToString() for operand in instruction.operand_ids[:])
        kind = digests.of_instruction(instruction), *operands
        time_of[kind] += took
        total += took
        seconds.append(took)
        kinds.append(kind)
    seen, spent, represented, read = Counter[tuple[bytes, ...]](), 0.0, 0.0, 0
    for place, (instruction, kind, took) in enumerate(zip(instructions, kinds, seconds, strict=True), 1):
        spent += took
        if spent > LARGEST_PART * total:
            return None
        if instruction.opcode == "parameter":
            read += shape_of(instruction.shape).bytes
        seen[kind] += 1
        if seen[kind] == REPETITIONS:
            represented += time_of[kind]
        if represented >= REPRESENTED * total and read >= least_bytes:
            return place
    return None


def _cut(module: Module, instructions: Sequence[InstructionProto], end: int) -> Module | None:
    """The program's first instructions, with all of its parameters."""
    part = module.copy()
    keep_inputs(part)
    editor = Editor(part, part.entry)
    first = {instruction.id for instruction in instructions[:end]}
    read_later = dict.fromkeys(o for i in instructions[end:] for o in i.operand_ids[:] if o in first)
    results = dict[int, InstructionProto]()
    for identifier in read_later:
        instruction = editor.instructions[identifier]
        # As copy insertion has left them, results share no buffer with each other or with an input.
        source = peel_instruction(instruction, PEEL_RENAMES, editor.instructions)
        if shape_of(instruction.shape).is_array and source.opcode not in ("parameter", "constant"):
            results.setdefault(source.id, instruction)
    if not results:
        return None
    values = [(instruction.id, shape_of(instruction.shape)) for instruction in results.values()]
    editor.root_id, _ = row_major_results(editor.last(), values, "part")
    editor.remove_dead_code({i for i, proto in editor.instructions.items() if proto.opcode != "parameter"})
    commit(part, [editor])
    update_signature(part)
    return part
