"""Loop harnesses: regions extracted with their loop run any number of iterations, timed without the launch."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, calls, compiled, depthwise

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.analysis.loop_nest import executions
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare import loop_harness_timing
from hlo_dispatch.autotune.compare.loop_harness_timing import interleaved_iterations
from hlo_dispatch.autotune.compare.timing import interleaved
from hlo_dispatch.autotune.extract.context_ops import with_context_ops
from hlo_dispatch.autotune.extract.digest import Digests
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule, LoopContext
from hlo_dispatch.autotune.extract.loop_harness import in_loop
from hlo_dispatch.autotune.extract.region import RegionExtractor
from hlo_dispatch.autotune.extract.trip_count_reduction import fitting_trips, with_trips
from hlo_dispatch.autotune.run.deadline import Deadline
from hlo_dispatch.autotune.run.executable import Executable, start, to_device
from hlo_dispatch.autotune.run.inputs import random_inputs
from hlo_dispatch.autotune.run.running_time import running_time
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.autotune.tuner import Tuner
from hlo_dispatch.driver.single_call import dispatch_single_call
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.selection.candidate import DefaultVariant, default_variant
from hlo_dispatch.vendor import registration

pytestmark = pytest.mark.usefixtures("_own_store")
RANDOM = np.random.default_rng(11)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (RANDOM.standard_normal(shape) / 4).astype(jnp.dtype(dtype))


def wide(array) -> np.ndarray:
    return np.asarray(array).astype("complex128" if np.iscomplexobj(array) else "float64")


def recurrent(w, x):
    return jax.lax.scan(lambda h, _: (jax.nn.relu(h @ w), None), x, None, length=700)[0]


def stacked(w, x):
    """Each iteration has weights of its own, and what it computes is read by something else."""
    return jax.lax.scan(lambda h, v: (jnp.cumsum(jnp.tanh(h @ v), axis=0), h.sum()), x, w)


def nested(w, x):
    inner = lambda x: jax.lax.fori_loop(0, 5, lambda _, x: jax.nn.relu(x @ w), x)  # noqa: E731
    return jax.lax.fori_loop(0, 9, lambda _, x: inner(x) * 0.5, x)


def until_small(w, x):
    return jax.lax.while_loop(lambda x: jnp.max(x) > 0.01, lambda x: jax.nn.relu(x @ w), x)


def convolved(w, x):
    return jax.lax.fori_loop(0, 30, lambda _, x: depthwise(x, w), x)


def transformed(x):
    return jax.lax.fori_loop(0, 30, lambda _, x: jnp.fft.fft(x) / 4, x)


def solved(a, b):
    """Its result lies by column, which the extracted module renames."""
    return jax.lax.fori_loop(0, 30, lambda _, b: jax.scipy.linalg.solve_triangular(a, b, lower=True) / 2, b)


def factored(a):
    return jax.lax.fori_loop(0, 30, lambda _, b: jax.lax.linalg.cholesky(b, symmetrize_input=False) + a, a)


PROGRAMS = {
    "recurrent": (recurrent, (normal(33, 33), normal(7, 33)), 4096),
    "recurrent bf16": (recurrent, (normal(33, 33, dtype="bfloat16"), normal(7, 33, dtype="bfloat16")), 4096),
    "two rows": (recurrent, (normal(129, 129), normal(2, 129)), 4096),
    "stacked": (stacked, (normal(6, 40, 40), normal(9, 40)), 8),
    "nested": (nested, (normal(40, 40), normal(9, 40)), 64),
    "unknown trip count": (until_small, (normal(40, 40), normal(9, 40)), 4096),
    "convolution": (convolved, (FILTER, IMAGE), 64),
    "transform": (transformed, (normal(9, 40).astype("complex64"),), 64),
    "solve": (solved, (np.tril(normal(40, 40)) + 2 * np.eye(40, dtype="float32"), normal(40, 9)), 64),
    "library call": (factored, (np.eye(40, dtype="float32") + normal(40, 40) / 99,), 64),
}


def regions(function, *arguments) -> list[tuple[ExtractedModule, DefaultVariant]]:
    """Every region of a program inside its loops that a kernel takes."""
    module = Module.from_bytes(optimized(function, *arguments))
    times, planner, found = executions(module), pipeline((), "always").planner, []
    for computation, is_small in module.control_flow_computations():
        graph = FlatGraph(module, computation)
        plan = planner.plan(graph, lambda match, default: None, small=is_small)
        extractor = RegionExtractor(graph, Digests(module), times[computation.id])
        for match, decision in plan.decisions.values():
            if match is not None and decision.candidate is not None and times[computation.id] > 1:
                default = default_variant(decision.candidate.match, planner.support_query)
                assert isinstance(default, DefaultVariant)
                extracted = extractor.extract(default.candidate.match.in_module)
                assert isinstance(extracted, ExtractedModule), extracted
                found.append((extracted, default))
    return found


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    start()
    registration.register({})


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_region_in_its_loop_computes_what_it_computes_alone(name: str) -> None:
    function, arguments, most_trips = PROGRAMS[name]
    found = regions(function, *arguments)
    assert found
    for extracted, default in found:
        assert extracted.loop is not None
        assert extracted.loop.most_trips == most_trips
        looped = in_loop(extracted)
        dispatched = dispatch_single_call(pipeline((), "always"), looped, default, default.variant)
        assert dispatched is not None
        assert dispatched.to_bytes().count(b"hlo_dispatch.") >= 1
        inputs = random_inputs(extracted.module, extracted.inputs, 5)
        expected = [wide(a) for a in Executable(extracted.module)(to_device(inputs))]
        for module in (looped.module, dispatched):
            for threads in (1, 2):
                executable = Executable(with_context_ops(module, extracted, threads))
                got = executable(to_device([*inputs, np.int32(1)]))
                for one, other in zip(expected, got, strict=True):
                    tolerance = 2e-2 if "bf16" in name else 1e-4
                    np.testing.assert_allclose(wide(other), one, rtol=tolerance, atol=tolerance)
                if not extracted.loop.carried:
                    # Every iteration computes the same.
                    again = executable(to_device([*inputs, np.int32(3)]))
                    assert [np.asarray(a).tobytes() for a in again] == [np.asarray(a).tobytes() for a in got]


def test_what_the_next_iteration_reads_shares_a_buffer_with_what_this_one_writes() -> None:
    """Where the kernel's result would overwrite its own operand the pass adds a copy, which has to be timed, too."""
    function, arguments, _ = PROGRAMS["recurrent"]
    ((extracted, default),) = regions(function, *arguments)
    assert extracted.loop == LoopContext(4096, ((0, 0),))
    dispatched = dispatch_single_call(pipeline((), "always"), in_loop(extracted), default, default.variant)
    assert dispatched is not None
    body = next(c for c in dispatched.proto.computations if c.name == "region")
    assert [i.opcode for i in body.instructions].count("copy") == 1
    w, x = arguments
    inputs = [x, w] if extracted.inputs[0].dimensions == x.shape else [w, x]
    executable = Executable(with_context_ops(dispatched, extracted, 2))
    (got,) = executable(to_device([*inputs, np.int32(3)]))
    expected = x.astype("float64")
    for _ in range(3):
        expected = np.maximum(expected @ w.astype("float64"), 0)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-5)


def test_what_computes_and_updates_nothing_of_its_loop_carries_nothing() -> None:
    function, arguments, _ = PROGRAMS["stacked"]
    for extracted, _ in regions(function, *arguments):
        assert extracted.loop is not None
        assert extracted.loop.carried == ()


def test_the_digest_says_in_which_class_of_loops_a_region_runs() -> None:
    def digests(length: int) -> set[str]:
        def program(w, x):
            return jax.lax.scan(lambda h, _: (jax.nn.relu(h @ w), None), x, None, length=length)[0]

        module = Module.from_bytes(optimized(program, normal(33, 33), normal(7, 33)))
        times, planner = executions(module), pipeline((), "always").planner
        found = set()
        for computation, _ in module.control_flow_computations():
            graph = FlatGraph(module, computation)
            extractor = RegionExtractor(graph, Digests(module), times[computation.id])
            plan = planner.plan(graph, lambda match, default: None, small=False)
            taken = [match for match, decision in plan.decisions.values() if match and decision.candidate]
            found |= {extractor.digest(match, "") for match in taken}
        return found

    assert digests(20) == digests(60) != digests(600)


class Clock:
    """Time that passes only when a harness runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.launched: list[int] = []
        monkeypatch.setattr(loop_harness_timing.time, "perf_counter", lambda: self.now)

    def harness(self, launch: float, iteration: float):
        def run(iterations: int) -> None:
            self.launched.append(iterations)
            self.now += launch + iterations * iteration

        return run


@pytest.mark.parametrize("most", [8, 4096])
def test_a_launch_is_charged_to_nobody(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Stock is launched on another thread, for 45 us; ours in the caller's, for 10: alone it would win by far."""
    clock = Clock(monkeypatch)
    stock, own = clock.harness(45e-6, 6e-6), clock.harness(10e-6, 9e-6)
    alone = interleaved([lambda: stock(1), lambda: own(1)], seconds=0.1)
    assert alone[1].wins(0.02 * alone[0].seconds)
    times = interleaved_iterations([stock, own], most=most, seconds=0.1, deadline=Deadline())
    assert times[0].seconds == pytest.approx(6e-6)
    assert times[1].seconds == pytest.approx(9e-6)
    assert times[1].gain == pytest.approx(-3e-6)
    assert max(clock.launched) <= most


def test_long_iterations_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    harnesses = [clock.harness(45e-6, 0.3), clock.harness(10e-6, 0.1)]
    times = interleaved_iterations(harnesses, most=4096, seconds=0.1, deadline=Deadline())
    assert times[1].gain == pytest.approx(0.2)
    assert max(clock.launched) == 1


def test_a_program_with_one_call_in_a_loop_is_tried_as_a_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(Tuner, "measure_program", lambda self, program, *_, **__: tried.append(program))
    compiled(convolved, FILTER, IMAGE)
    assert len(tried) == 2, "before its regions are measured, and behind them"
    tried.clear()
    compiled(depthwise, IMAGE, FILTER)
    assert not tried, "one call alone is measured as it is"


def test_a_program_that_runs_long_is_tried_with_fewer_iterations(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(w, x):
        return jax.lax.fori_loop(0, 100_000, lambda _, x: depthwise(x, w), x)

    module = Module.from_bytes(optimized(long, FILTER, IMAGE))
    whole = running_time(module)
    assert whole is not None
    trips = fitting_trips(module, whole / 100)
    assert trips is not None
    assert 100_000 / 400 < trips < 100_000 / 100
    assert fitting_trips(module, whole) is None, "it fits as it is"
    assert fitting_trips(module, 1e-9) is None, "nothing fits"
    assert running_time(with_trips(module, trips)) == pytest.approx(whole * trips / 100_000, rel=0.1)
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "6")
    compiled(long, FILTER, IMAGE)
    assert [e for e in store.entries() if e.measured.kernel == whole_program_trial.ALL_KERNELS and e.measured.seconds]


@pytest.mark.timing
def test_a_small_call_in_a_loop_is_charged_by_what_it_takes_there(store: Store) -> None:
    executable = compiled(recurrent, normal(64, 64), normal(64, 64))
    (entry,) = [entry for entry in store.entries() if entry.measured.kernel != whole_program_trial.ALL_KERNELS]
    # Two cores do these 262,144 multiply-adds in a few microseconds; a launch alone takes longer.
    assert all(seconds < 40e-6 for seconds in entry.measured.seconds.values()), entry.measured
    assert calls(executable) in (0, 1)


def test_names_of_a_harness_are_its_own() -> None:
    """A region whose result lies by column ends in a bitcast of this name; XLA refuses a module with a name twice."""
    function, arguments, _ = PROGRAMS["recurrent"]
    ((extracted, _),) = regions(function, *arguments)
    module = extracted.module.copy()
    next(i for i in module.entry.instructions if i.id == module.entry.root_id).name = "region_result.0"
    looped = in_loop(replace(extracted, module=module)).module
    names = [i.name for i in looped.instructions if i.name.startswith(("region_", "loop_"))]
    assert len(names) == len(set(names))
