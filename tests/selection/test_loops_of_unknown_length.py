"""Loops of unknown length in whole-program trials: they run a few times, whatever their condition says."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, calls, compiled, depthwise

import hlo_dispatch
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare.measure import Unmeasurable
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.extract.trip_count_reduction import ASSUMED_TRIPS, fitting_trips, with_trips
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.run.executable import Executable, to_device
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.selection.measurements import STOCK, Measurement
from hlo_dispatch.selection.strategies import COST_MODEL, MEASURED_ALONE

pytestmark = pytest.mark.usefixtures("_own_store")
STATE = "(s32[], f32[4]{0})"
BODY = f"""body {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4]{{0}} get-tuple-element(s), index=1
  one = s32[] constant(1)
  more = s32[] add(i, one)
  grown = f32[4]{{0}} add(x, x)
  ROOT next = {STATE} tuple(more, grown) }}
"""
SMALL = 'frontend_attributes={xla_cpu_small_call="true"}'


def doubling(*, small: bool, body: str = BODY, config: str = "") -> Module:
    """A loop that never ends and doubles its state."""
    around = f"""called {{ t.1 = {STATE} parameter(0)
  ROOT w = {STATE} while(t.1), condition=condition, body=body{config} }}
"""
    text = f"""HloModule m
{body}condition {{ s.1 = {STATE} parameter(0)
  ROOT goes_on = pred[] constant(true) }}
{around}ENTRY e {{ x.1 = f32[4]{{0}} parameter(0)
  zero = s32[] constant(0)
  begin = s32[] copy(zero)
  copied = f32[4]{{0}} copy(x.1)
  t = {STATE} tuple(begin, copied)
  loop = {STATE} call(t), to_apply=called{", " + SMALL if small else ""}
  ROOT r = f32[4]{{0}} get-tuple-element(loop), index=1 }}
"""
    return Module.from_bytes(from_text(text))


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("most", [1, 5, 1000])
def test_it_runs_as_often_as_it_is_told(small: bool, most: int) -> None:
    """XLA ignores known trip counts in a small call."""
    module = doubling(small=small)
    limited = with_trips(module, most)
    verify(limited)
    executable.start()
    (result,) = Executable(limited)(to_device([np.ones(4, "float32")]))
    np.testing.assert_array_equal(result, np.full(4, 2.0 ** min(most, ASSUMED_TRIPS), "float32"))
    assert running_time(module) is None
    assert running_time(limited) is not None
    assert running_time(limited) == pytest.approx(running_time(with_trips(limited, most))), "limited once"


@pytest.mark.parametrize("small", [False, True])
def test_a_loop_in_a_loop(small: bool) -> None:
    """Each runs as often as it is told, whenever it begins."""
    inner = BODY.replace("body {", "inner {")
    outer = f"""going_on {{ s.2 = {STATE} parameter(0)
  ROOT goes_on.1 = pred[] constant(true) }}
body {{ o = {STATE} parameter(0)
  n = s32[] get-tuple-element(o), index=0
  y = f32[4]{{0}} get-tuple-element(o), index=1
  none = s32[] constant(0)
  first = s32[] copy(none)
  begun = {STATE} tuple(first, y)
  looped = {STATE} while(begun), condition=going_on, body=inner
  result = f32[4]{{0}} get-tuple-element(looped), index=1
  one.1 = s32[] constant(1)
  more.1 = s32[] add(n, one.1)
  ROOT next.1 = {STATE} tuple(more.1, result) }}
"""
    limited = with_trips(doubling(small=small, body=inner + outer), 3)
    verify(limited)
    executable.start()
    (result,) = Executable(limited)(to_device([np.ones(4, "float32")]))
    np.testing.assert_array_equal(result, np.full(4, 2.0**9, "float32"))


def test_a_long_loop_in_a_small_call_is_shortened() -> None:
    module = doubling(small=True, config=', backend_config={"known_trip_count":{"n":"1000000"}}')
    executable.start()
    (result,) = Executable(with_trips(module, 16))(to_device([np.ones(4, "float32")]))
    np.testing.assert_array_equal(result, np.full(4, 2.0**16, "float32"))


def test_what_may_never_end_is_never_run() -> None:
    """The body returns its own state: there is no tuple to add a counter to."""
    body = f"body {{ ROOT s = {STATE} parameter(0) }}\n"
    module = doubling(small=True, body=body)
    with pytest.raises(Unmeasurable):
        whole_program_trial.compare(module, {COST_MODEL.name: module})


def test_as_many_iterations_as_fit() -> None:
    def solve(x):
        return jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: jnp.tanh(c @ c), x)

    module = Module.from_bytes(optimized(solve, np.ones((256, 256), "float32")))
    once = running_time(with_trips(module, 1))
    assert once is not None
    assert fitting_trips(module, 1000 * once) == ASSUMED_TRIPS
    assert fitting_trips(module, 20 * once) == 16
    assert fitting_trips(module, 5 * once) == 4
    assert fitting_trips(module, once / 2) == 2, "the deadline decides"


# --- which program wins ------------------------------------------------------------------------------------


def prompted(x, w):
    """A product before the loop, as large as ten of those inside."""
    start = jnp.tanh(jnp.tile(x, (10, 1)) @ w)[:64]
    return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: jnp.tanh(x @ w), start)


@pytest.mark.parametrize(
    ("halved", "chosen", "why"),
    [
        (0.2, COST_MODEL.name, ""),
        (0.39, COST_MODEL.name, ""),
        (0.9, STOCK, whole_program_trial.BY_ITERATIONS),
        (None, COST_MODEL.name, ""),
    ],
)
def test_a_gain_in_front_of_a_loop_does_not_pay_for_a_loss_inside(
    monkeypatch: pytest.MonkeyPatch, halved: float | None, chosen: str, why: str
) -> None:
    """Stock takes 2 s, the variant 1.6 s; with half the iterations it gains `halved`, if there is time for that."""
    w = np.ones((256, 256), "float32") / 256
    stock = Module.from_bytes(optimized(prompted, np.ones((64, 256), "float32"), w))
    variant, _ = pipeline((), "always").rewrite(stock.copy())
    assert variant is not None
    trials: list[int] = []

    def scripted(programs: Sequence[object], **_: object) -> list[Time]:
        trials.append(len(programs))
        if len(trials) == 1:
            return [Time(2.0, 0.0, 0.0), Time(1.6, 0.4, 0.01)]
        if halved is None:
            raise whole_program_trial.OutOfTime
        return [Time(1.0, 0.0, 0.0), Time(1.0 - halved, halved, 0.01)]

    monkeypatch.setattr(whole_program_trial, "interleaved", scripted)
    found = whole_program_trial.compare(stock, {COST_MODEL.name: variant})
    assert (found.chosen, found.why, found.thorough) == (chosen, why, halved is not None)
    assert found.trip_limit == ASSUMED_TRIPS
    assert trials == [2, 2]


def test_where_all_calls_are_in_the_loop_one_trial_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(x, w):
        return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: jnp.tanh(x @ w), x)

    stock = Module.from_bytes(optimized(solve, np.ones((64, 256), "float32"), np.ones((256, 256), "float32") / 256))
    variant, _ = pipeline((), "always").rewrite(stock.copy())
    assert variant is not None
    monkeypatch.setattr(
        whole_program_trial, "interleaved", lambda *_, **__: [Time(2.0, 0.0, 0.0), Time(1.6, 0.4, 0.01)]
    )
    monkeypatch.setattr(whole_program_trial.TrialPrograms, "__init__", once(whole_program_trial.TrialPrograms.__init__))
    assert whole_program_trial.compare(stock, {COST_MODEL.name: variant}).chosen == COST_MODEL.name


def once(function):
    ran: list[None] = []

    def wrapped(*arguments, **named):
        assert not ran
        ran.append(None)
        return function(*arguments, **named)

    return wrapped


# --- programs ----------------------------------------------------------------------------------------------


def whole_programs(store: Store) -> list[Measurement]:
    return [e.measured for e in store.entries() if e.measured.kernel == whole_program_trial.ALL_KERNELS]


@pytest.mark.usefixtures("_any_answer")
def test_a_loop_whose_length_depends_on_the_inputs_is_tried(store: Store) -> None:
    def loop(image, window):
        def step(image):
            return depthwise(depthwise(image, window) + 1, window)

        return jax.lax.while_loop(lambda image: image[0, 0, 0, 0] < 9, step, image)

    program = compiled(loop, IMAGE, FILTER)
    (whole,) = whole_programs(store)
    assert not whole.failed_attempts
    assert 0 < whole.trip_limit <= ASSUMED_TRIPS
    assert (calls(program) > 0) == (whole.chosen != STOCK)
    assert f"loops of at most {whole.trip_limit} iterations" in whole.sentence()


def generated(w, embedding, tokens):
    """Greedy decoding until an end token, at most eleven tokens."""

    def body(state):
        tokens, at, _ = state
        x = embedding[tokens[:, at]]
        for _ in range(2):
            x = x + jax.nn.silu(x @ w) @ w.T
        token = jnp.argmax(x @ embedding.T, -1).astype(jnp.int32)
        return jax.lax.dynamic_update_slice(tokens, token[:, None], (0, at + 1)), at + 1, token[0] == 3

    return jax.lax.while_loop(lambda s: (s[1] < 11) & ~s[2], body, (tokens, 0, False))[0]


@pytest.mark.usefixtures("_any_answer")
@pytest.mark.parametrize("chosen", [STOCK, MEASURED_ALONE.name])
def test_generation(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    """The result is stock's whatever the trial says, and the report says what the trial ran."""

    def scripted(stock: Module, variants, *, is_final: bool, **_) -> Measurement:
        assert fitting_trips(stock, 10.0) == ASSUMED_TRIPS
        assert [name for name, _ in variants]
        seconds = {STOCK: 2e-3, MEASURED_ALONE.name: 3e-3 if chosen == STOCK else 1e-3}
        kernel = whole_program_trial.ALL_KERNELS
        return Measurement(chosen, seconds, 1e-3, thorough=is_final, trip_limit=ASSUMED_TRIPS, kernel=kernel)

    monkeypatch.setattr(whole_program_trial, "compare", scripted)
    random = np.random.default_rng(5)
    w, embedding = (random.standard_normal(s, dtype="float32") / 16 for s in ((256, 512), (64, 256)))
    tokens = np.zeros((16, 16), "int32")
    program = compiled(generated, w, embedding, tokens)
    report = hlo_dispatch.reports()[-1]
    np.testing.assert_array_equal(program(w, embedding, tokens), jax.jit(generated)(w, embedding, tokens))
    if chosen == STOCK:
        assert calls(program) == 0
        reasons = {region.reason for region in report.regions}
        assert any(f"with loops of at most {ASSUMED_TRIPS} iterations" in reason for reason in reasons)
