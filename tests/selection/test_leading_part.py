"""Leading parts of programs: what repeats the first layers is left out of whole-program trials."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import compiled, forget
from test_settled_programs import Counted

from hlo_dispatch.autotune.extract.leading_part import leading_part
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.whole_program_trial import ALL_KERNELS
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.passes import program_tuner

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((16, 96), "float32")
LAYERS = tuple(RANDOM.standard_normal((96, 96), "float32") / 10 for _ in range(12))


def network(x: Any, layers: tuple[Any, ...]) -> tuple[Any, Any]:
    sums = []
    for w in layers:
        x = jnp.tanh(x @ w)
        sums.append(x.sum(0))
    return x, sums


def part_of(function: Any, *arguments: Any) -> tuple[Module, Module | None]:
    module = Module.from_bytes(optimized(function, *arguments))
    return module, leading_part(module, fewest=1, least_bytes=0)


def test_the_first_layers_stand_for_all() -> None:
    module, part = part_of(network, X, LAYERS)
    assert part is not None
    verify(part)
    assert part.instruction_count < module.instruction_count / 2
    assert part.entry.program_shape.parameters == module.entry.program_shape.parameters
    executable.start()
    found = [np.asarray(value) for value in executable.Executable(part)(executable.to_device([X, *LAYERS]))]
    values = [np.asarray(network(X, LAYERS[:count])[0]) for count in range(1, 7)]
    whole = [value for value in found if value.shape == X.shape]
    assert whole
    for value in whole:
        assert any(np.allclose(value, expected, atol=1e-5) for expected in values)


def test_one_result_is_no_tuple() -> None:
    """As of layers that hand on nothing but their one result."""
    _, part = part_of(lambda x, layers: network(x, layers)[0], X, LAYERS)
    assert part is not None
    verify(part)
    executable.start()
    (found,) = executable.Executable(part)(executable.to_device([X, *LAYERS]))
    values = [np.asarray(network(X, LAYERS[:count])[0]) for count in range(1, 12)]
    assert any(np.allclose(np.asarray(found), expected, atol=1e-5) for expected in values)


def test_a_program_that_repeats_nothing_has_none() -> None:
    widths = (64, 96, 128, 160, 192, 224)
    layers = tuple(np.ones(shape, "float32") for shape in pairwise(widths))
    assert part_of(network, X[:, :64], layers)[1] is None


def test_small_programs_have_none() -> None:
    assert leading_part(Module.from_bytes(optimized(network, X, LAYERS))) is None


def test_loops_are_no_layers() -> None:
    """Nearly all of its time is in one instruction."""

    def scanned(x: Any, layers: tuple[Any, ...]) -> Any:
        x = network(x, layers[:4])[0]
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ layers[0]), None), x, None, length=100)[0]

    assert part_of(scanned, X, LAYERS)[1] is None


@pytest.mark.usefixtures("_own_store")
def test_trials_run_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[Module] = []

    def small(module: Module) -> Module | None:
        part = leading_part(module, fewest=1, least_bytes=0)
        parts.extend(() if part is None else (part,))
        return part

    tried: list[Module] = []
    counted = Counted(monkeypatch)
    compare = counted.compare

    def noted(stock: Module, variants: Any, *, is_part: bool, **more: Any) -> Any:
        assert is_part
        tried.append(stock)
        return compare(stock, variants, **more)

    monkeypatch.setattr("hlo_dispatch.autotune.whole_program_trial.compare", noted)
    monkeypatch.setattr(program_tuner, "leading_part", small)
    forget(store)
    compiled(network, X, LAYERS)
    assert len(parts) == 1
    assert tried
    assert all(stock is parts[0] for stock in tried)
    assert any(entry.measured.kernel == ALL_KERNELS for entry in store.entries())
