"""A whole program, stock against dispatched: what its regions cannot tell one by one.

Regions that share fusions are entangled: dispatching one takes work out of its neighbours' fusions that alone it
does not show. And however well each region was measured, it is the program that must not become slower. So
where a program can be run on its own, it is, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.shape import Shape, shape_of
from hlo_dispatch.policy.executable import Executable, to_device
from hlo_dispatch.policy.inputs import random_inputs
from hlo_dispatch.policy.measure import Unmeasurable
from hlo_dispatch.policy.measured import STOCK, Measured
from hlo_dispatch.policy.race import race

WHOLE = "all of them"
"""What is measured instead of one kernel."""
SECONDS = 1.0
LARGEST_PROGRAM = 2 << 30
"""Bytes of inputs; so much is allocated for a moment."""
LEAST_GAIN = 0.01
# Random inputs may make a loop endless, and what has an effect is nobody's to repeat.
_NEVER_RUN = frozenset(
    "while conditional call infeed outfeed send recv rng rng-bit-generator all-reduce all-gather all-to-all "
    "collective-permute reduce-scatter partition-id replica-id async-start custom-call".split()
)


def can_be_run(module: Module) -> bool:
    """Whether the program computes the same amount on any inputs, and nothing else than its results."""
    entry = module.entry
    if any(instruction.opcode in _NEVER_RUN for instruction in entry.instructions):
        return False
    signature = entry.program_shape
    results = signature.result.tuple_shapes or (signature.result,)
    shapes = [shape_of(shape) for shape in (*signature.parameters, *results)]
    return all(s.is_array and not s.is_dynamic for s in shapes) and sum(s.bytes for s in shapes) <= LARGEST_PROGRAM


def compare(stock: bytes, variants: Mapping[str, bytes]) -> Measured:
    """Time whole programs.

    Args:
        stock: the optimized module as XLA made it.
        variants: "together" and maybe "apart" → the module with its kernel calls.

    Returns:
        the chosen variant, or "stock".

    Raises:
        Unmeasurable: the program cannot be run on random inputs.
    """
    module = Module.from_bytes(stock)
    if not can_be_run(module):
        raise Unmeasurable("what the program does depends on its inputs")
    shapes: Sequence[Shape] = [shape_of(shape) for shape in module.entry.program_shape.parameters]
    arguments = to_device(random_inputs(module, shapes, 1))
    programs = [_Program(Executable(_plain(m)), arguments) for m in (stock, *variants.values())]
    times = race(programs, seconds=SECONDS)
    reference = times[0].seconds
    seconds = {STOCK: reference} | dict(zip(variants, (time.seconds for time in times[1:]), strict=True))
    found = dict(zip(variants, times[1:], strict=True))
    best = max(found, key=lambda name: found[name].gain)
    # The first variant is what is dispatched anyway; another one has to be clearly better.
    first = next(iter(found))
    if found[best].gain < found[first].gain + 2 * found[best].error + LEAST_GAIN * reference:
        best = first
    slower = found[best].gain < -2 * found[best].error - LEAST_GAIN * reference
    chosen = STOCK if slower else best
    gain = 0.0 if slower else found[best].gain
    return Measured(chosen, seconds, gain, found[best].error, formula=f"all of {module.name}", kernel=WHOLE)


def _plain(serialized: bytes) -> bytes:
    """The module without donated inputs: they are used again."""
    module = Module.from_bytes(serialized)
    module.proto.ClearField("input_output_alias")
    module.proto.ClearField("schedule")
    return module.to_bytes()


class _Program:
    def __init__(self, executable: Executable, arguments: Sequence[Any]) -> None:
        self._executable, self._arguments = executable, arguments

    def __call__(self) -> None:
        self._executable(self._arguments)
