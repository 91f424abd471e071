"""Neither regions nor the rewriter's modules recompute products or reductions for every element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import pytest
from encoders import flax_block, plain_block

from hlo_dispatch.analysis.loop_fusion import is_loop_fusible, is_recomputed
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.measurement_requests import MeasurementRequest
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.driver.single_call import dispatch_single_call
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.selection.measurements import KnownMeasurements


def gradient(block):
    function, arguments = block
    return jax.grad(lambda *a: (function(*a) ** 2).sum(), tuple(range(len(arguments)))), arguments


BLOCKS: dict[str, Callable] = {
    "flax": lambda: flax_block(2, 32, 64),
    "flax, one sequence": lambda: flax_block(1, 64, 64),
    "flax, short": lambda: flax_block(1, 16, 64),
    "flax, gradient": lambda: gradient(flax_block(1, 16, 64)),
    "plain": lambda: plain_block(2, 32, 64),
    "plain, gradient": lambda: gradient(plain_block(2, 32, 64)),
}


class Cuts:
    """In the place of a tuner: cuts every region out and makes its candidate, and measures nothing."""

    is_thorough = False

    def __init__(self) -> None:
        self.extracts: list[ExtractedModule] = []
        self.refusals: list[Refusal] = []
        self.candidates: list[bytes] = []

    def __call__(self, unknown: Sequence[MeasurementRequest], support_query) -> int:
        for region in unknown:
            found = region.extractor.extract(region.default.candidate.match.in_module)
            if isinstance(found, Refusal):
                self.refusals.append(found)
                continue
            self.extracts.append(found)
            candidate = dispatch_single_call(pipeline((), "heuristic"), found, region.default, region.default.variant)
            if candidate is not None:
                self.candidates.append(candidate)
        return 0

    def measure_program(self, *_, **__) -> None:
        pass


def loops(module: Module) -> list:
    """The computations of all loop fusions."""
    every = (i for i in module.instructions if i.opcode == "fusion")
    return [module.computations[i.called_computation_ids[0]] for i in every if i.fusion_kind == "kLoop"]


@pytest.mark.parametrize("name", BLOCKS)
def test_regions_of_a_block(name: str) -> None:
    function, arguments = BLOCKS[name]()
    program = optimized(function, *arguments)
    # XLA may fuse a reduction into a loop where it is read once. What it has, a region may have.
    own = [{i.opcode for i in c.instructions} for c in loops(Module.from_bytes(program))]
    cuts = Cuts()
    pipeline((), "measure").with_knowledge(KnownMeasurements(), lambda *_: cuts).run(program)
    assert cuts.extracts
    assert cuts.candidates
    assert not cuts.refusals
    whole = running_time(Module.from_bytes(program))
    assert whole is not None
    for extracted in cuts.extracts:
        alone = running_time(extracted.module)
        assert alone is not None
        assert alone < whole
        for computation in loops(extracted.module):
            opcodes = {i.opcode for i in computation.instructions}
            assert opcodes in own or all(is_loop_fusible(opcode) for opcode in opcodes - {"parameter"}), opcodes
            assert not is_recomputed(computation)


@pytest.mark.parametrize("name", BLOCKS)
def test_what_users_get(name: str) -> None:
    """With every kernel in its place the program does no more in loops than XLA's own."""
    function, arguments = BLOCKS[name]()
    program = optimized(function, *arguments)
    own = [{i.opcode for i in c.instructions} for c in loops(Module.from_bytes(program))]
    dispatched, _ = pipeline((), "always").run(program)
    assert dispatched is not None
    for computation in loops(Module.from_bytes(dispatched)):
        opcodes = {i.opcode for i in computation.instructions}
        assert any(opcodes <= one for one in own) or all(is_loop_fusible(o) for o in opcodes - {"parameter"}), opcodes
        assert not is_recomputed(computation)
