"""Renumbered entry parameters keep their donation: checked in the modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from split_program import optimized
from stages import split_small_weights

from hlo_dispatch.analysis.overwritten_parameters import keep_inputs, overwritten_parameters
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.driver.frozen_build import FrozenModule, build
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.partition import prologue_stages
from hlo_dispatch.passes.partition.constant_weights import extract_constants, restore_constants
from hlo_dispatch.passes.partition.split_at_frontier import split_at, without_prologue
from hlo_dispatch.passes.pass_runner import run_passes
from hlo_dispatch.pipeline import PREPROCESSING

LAYERS, CHANNELS = 4, 16
RANDOM = np.random.default_rng(0)
# Each of another shape, by which they are known.
X, CACHE, COUNT, SPARE = (1, 7, 5, CHANNELS), (3, 11), (13,), (17,)
Donations = set[tuple[str, str]]


def array(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.uniform(-0.5, 0.5, shape), "float32")


def layer(x: Any, w: Any, s: Any, b: Any) -> Any:
    dimensions = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dimensions)
    return jax.nn.relu(x * s + b)


def weights() -> list[jax.Array]:
    """Of a network with vectors that sequences alone read, one array that nothing reads, and one kept as it is."""
    found = [array(2, 2)]
    for number in range(LAYERS):
        size = 1 + 2 * (number % 2)
        found += [array(size, size, CHANNELS, CHANNELS), array(CHANNELS), array(CHANNELS)]
    return [*found, array(CHANNELS, 1024 * CHANNELS), array(*COUNT)]


FROZEN = frozenset(range(len(weights())))


def network(*given: Any) -> Any:
    """Two arrays among its arguments become results."""
    (_, *layers, head, kept), (x, cache, count, spare) = given[: len(FROZEN)], given[len(FROZEN) :]
    for number in range(LAYERS):
        x = layer(x, *layers[3 * number : 3 * number + 3])
    row = x.mean((1, 2)) @ head
    return row, jax.lax.dynamic_update_slice(cache, row[:, : CACHE[1]], (1, 0)), count + kept, spare.sum()


def in_a_loop(w: Any, x: Any, cache: Any, spare: Any) -> Any:
    h = jax.lax.fori_loop(0, 5, lambda i, h: jnp.tanh(h @ w.T + 1), x)
    return h, cache + h[0, 0], spare.sum()


def donating(program: Callable[..., Any], arguments: list[Any], donated: tuple[int, ...], donor: int) -> Module:
    """The optimized module; of what `donor` is nothing is made that could take its memory over."""
    module = optimized(program, arguments, donated)
    verify(module)
    if not any(one.parameter_number == donor for one in module.proto.buffer_donor.entries):
        module.proto.buffer_donor.entries.add(parameter_number=donor)
    return module


@pytest.fixture(scope="module")
def whole() -> Module:
    count = len(FROZEN)
    arguments = [*weights(), array(*X), array(*CACHE), array(*COUNT), array(*SPARE)]
    return donating(network, arguments, (count + 1, count + 2), count + 3)


def donations(module: Module) -> Donations:
    """(shape of a parameter, which result takes it over); all as XLA demands it."""
    verify(module)
    shapes = {i.parameter_number: str(shape_of(i.shape)) for i in module.entry.instructions if i.opcode == "parameter"}
    aliases = {
        (shapes[one.parameter_number], str([*one.output_shape_index]))
        for one in module.proto.input_output_alias.entries
    }
    return aliases | {(shapes[one.parameter_number], "given away") for one in module.proto.buffer_donor.entries}


WANTED = {("f32[3,11]{1,0}", "[1]"), ("f32[13]{0}", "[2]"), ("f32[17]{0}", "given away")}


def test_the_whole_module_says_so(whole: Module) -> None:
    assert donations(whole) == WANTED


def coalesced(whole: Module) -> Split:
    split = build(FrozenModule(whole, FROZEN), pipeline((), "always"))
    assert any("small values" in value.origin for value in split.preprocessed), split.preprocessed
    return split


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda whole: split_at(whole.copy(), FROZEN, 2), id="split_at"),
        pytest.param(lambda whole: without_prologue(whole.copy(), FROZEN), id="without_prologue"),
        pytest.param(coalesced, id="coalesced"),
    ],
)
def test_the_program_takes_over_what_the_whole_module_does(
    whole: Module, place: Callable[[Module], Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    split = place(whole)
    assert donations(split.program) == WANTED
    count = len(split.program.entry.program_shape.parameters)
    assert count == len(split.preprocessed) + len(split.frozen_inputs) + len(split.dynamic_inputs) < len(FROZEN) + 4
    # Nothing of what is frozen may go: a later update, another program reads it.
    split_small_weights(monkeypatch)
    numbers = range(len(split.preprocessed))
    pieces = prologue_stages.PrologueGraph(split).stages(numbers) if numbers else ()
    assert (len(pieces) > 1) == (place is coalesced)
    for module in [split.prologue, *(piece.module for piece in pieces)]:
        assert module is None or donations(module) == set()


def test_what_is_moved_out_of_a_loop() -> None:
    whole = donating(in_a_loop, [array(96, 96), array(*CACHE[:1], 96), array(*CACHE), array(*SPARE)], (2,), 3)
    wanted = {("f32[3,11]{1,0}", "[1]"), ("f32[17]{0}", "given away")}
    assert donations(whole) == wanted
    split = build(FrozenModule(whole, frozenset((0,))), pipeline((), "always"))
    assert split.prologue is not None
    assert (donations(split.program), donations(split.prologue)) == (wanted, set())


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_preprocessed_result_does_not_lie_in_a_donated_array(is_alone: bool) -> None:
    """Nothing reads that array, so no reader asks for a copy; without one, the result was what the array had."""

    def program(w: Any, x: Any, y: Any) -> Any:
        return w * 2 if is_alone else (w * 2, y @ w)

    whole = optimized(program, [array(8, 16), array(8, 16), array(4, 8)], (1,))
    split = split_at(whole.copy(), frozenset((0,)), 2)
    (taken,) = split.program.proto.input_output_alias.entries
    by_id = {i.id: i for i in split.program.entry.instructions}
    root = by_id[split.program.entry.root_id]
    result = root if is_alone else by_id[root.operand_ids[taken.output_shape_index[0]]]
    assert result.opcode == "copy"
    assert by_id[result.operand_ids[0]].opcode == "parameter"


def test_constants_are_parameters_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    w, v = np.asarray(array(256, 512)), np.asarray(array(512, 256))

    def closed(x: Any, cache: Any, spare: Any) -> Any:
        x = jax.nn.gelu(x @ w) @ v
        return x, cache + x[0, 0], spare.sum()

    whole = donating(closed, [array(32, 256), array(*CACHE), array(*SPARE)], (1,), 2)
    wanted = {("f32[3,11]{1,0}", "[1]"), ("f32[17]{0}", "given away")}
    assert donations(whole) == wanted
    names = [*whole.entry.program_shape.parameter_names]
    module, context = whole.copy(), PassContext(pipeline((), "always").planner)
    extract_constants(module, context)
    assert donations(module) == wanted
    restored = module.copy()
    restore_constants(restored, context)
    assert donations(restored) == wanted
    assert run_passes(PREPROCESSING, module, context)
    assert donations(module) == wanted
    assert len(module.entry.program_shape.parameters) == len(names) == 3


def test_a_program_that_is_tried_keeps_its_inputs(whole: Module) -> None:
    """It runs many times on the same ones."""
    assert donations(whole_program_trial._plain(whole)) == set()


def test_inputs_are_kept_by_copies() -> None:
    def program(h: Any, w: Any) -> Any:
        y = jax.lax.fori_loop(0, 5, lambda _, h: jnp.tanh(h @ w), h)
        return jax.lax.fori_loop(0, 5, lambda _, z: z * 0.5 + y[0], jnp.ones(h.shape))

    module = optimized(program, [array(8, 16), array(16, 16)], (0,))
    assert overwritten_parameters(module, {0, 1}) == {0}
    keep_inputs(module)
    verify(module)
    assert not overwritten_parameters(module, {0, 1})
    assert not module.proto.input_output_alias.entries
