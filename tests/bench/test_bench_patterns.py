"""Micro-benchmarks of single patterns: samples are stored, also after an interrupt; no timing gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hlo_dispatch.bench import micro
from hlo_dispatch.bench.cases import Case, choose, make_case
from hlo_dispatch.bench.micro_view import print_micro
from hlo_dispatch.bench.repeated import CALLS, only_call, operands_of_call, repeated
from hlo_dispatch.bench.result_files import Results, ResultsError, median
from hlo_dispatch.bench.worker import Worker, WorkerFailed
from hlo_dispatch.report import Report

pytestmark = pytest.mark.any_python

PEAK = {"arithmetic": {"f32": 1e11, "bf16": 1e11, "f16": 1e11, "f64": 1e10}, "bandwidth": 1e10}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    opened = Results.open(tmp_path / "results.json", "patterns")
    opened.header["peak"] = PEAK  # measuring it takes longer than the cases
    return opened


def test_smoke(results: Results) -> None:
    cases = choose(tag="ci")
    entries = micro.run(cases, results, sides=("stock", "ours", "always", "raw"), seconds=0.01)
    assert [entry["name"] for entry in entries] == [case.name for case in cases]
    for entry in entries:
        assert entry["failed"] == {}
        assert median(entry["sides"]["stock"])
        if read_entries(entry):
            assert entry["kernels"]
            assert ("raw" in entry["sides"]) == entry["kernels"][0].startswith("onednn.")
            # bf16 rounds once where stock rounds at each step
            assert entry["difference"] <= (1e-4 if entry["dtype"] == "f32" else 3e-2)
        if entry["sides"].get("raw"):  # of oneDNN only
            assert min(entry["sides"]["raw"]["samples"]) > 0
            assert micro.overhead(entry) is not None
    assert len(json.loads(results.path.read_text())["results"]) == len(cases)


def read_entries(entry: dict) -> tuple[str, ...]:
    from hlo_dispatch.bench.pattern import read_pattern

    return read_pattern(entry["pattern"]).entries


def test_interrupted_and_resumed(results: Results) -> None:
    cases = choose(tag="ci")[:2]

    def interrupt(text: str) -> None:
        if text.startswith("2 of 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        micro.run(cases, results, sides=("stock",), seconds=0.01, say=interrupt)
    again = Results.open(results.path, "patterns")
    assert [entry["name"] for entry in again] == [cases[0].name]
    said: list[str] = []
    micro.run(cases, again, sides=("stock",), seconds=0.01, resume=True, say=said.append)
    assert len(again) == 2
    assert any("1 of 2 cases are measured already" in text for text in said)


def test_a_file_of_another_machine_is_left_alone(results: Results) -> None:
    results.header["machine"]["model"] = "another"
    results.write()
    with pytest.raises(ResultsError, match="another machine"):
        Results.open(results.path, "patterns")
    results.path.write_text("{}")
    with pytest.raises(ResultsError, match="no file of results"):
        Results.open(results.path, "patterns")


def test_a_worker_that_dies_is_an_error_with_its_last_words() -> None:
    worker = Worker("hlo_dispatch.bench.jax_worker", "no-such-side")
    with pytest.raises(WorkerFailed, match="no-such-side"):
        worker.ask({"hello": True})
    worker.close()


def dispatched(shape: str) -> tuple[Case, Sequence[Any], Report]:
    import hlo_dispatch
    from hlo_dispatch.autotune.run import executable
    from hlo_dispatch.bench import in_jax

    case = make_case("conv_bias_relu", shape, "f32", "channels-last")
    operands = executable.to_device(in_jax.arguments(case))
    with hlo_dispatch.enabled(policy="always"):
        return case, operands, hlo_dispatch.explain(in_jax.function(case), *operands)


# The second is long enough to be kept asynchronous by async padding, which is not a call.
@pytest.mark.parametrize("shape", ["n=1,c=8,h=9,w=9,k=16,r=3", "n=1,c=64,h=28,w=28,k=64,r=3"])
def test_repeated_calls_really_run(shape: str) -> None:
    import jax

    from hlo_dispatch.autotune.run import executable
    from hlo_dispatch.bench import in_jax

    case, operands, report = dispatched(shape)
    assert report.before is not None
    assert report.after is not None
    assert only_call(report.after)
    assert not only_call(report.before)
    several = executable.Executable(repeated(report.after, CALLS))
    text = several._loaded.hlo_modules()[0].to_string()
    assert text.count('custom_call_target="hlo_dispatch.onednn.convolution"') == CALLS
    (result,) = several(operands)
    expected = jax.jit(in_jax.function(case))(*operands)
    assert abs(result - expected).max() <= 1e-4


def test_a_raw_call_reads_what_the_program_reads() -> None:
    from hlo_dispatch import _kernels
    from hlo_dispatch.vendor import registry

    _, operands, report = dispatched("n=1,c=8,h=9,w=9,k=16,r=3")
    assert report.after is not None
    numbers = operands_of_call(report.after)
    assert sorted(numbers) == list(range(len(operands)))
    buffers = [(operands[number].unsafe_buffer_pointer(), operands[number].nbytes) for number in numbers]
    (region,) = report.dispatched
    target = registry.kernels()[region.kernel].target
    assert _kernels.run_raw(_kernels.raw_call(target, region.attributes, buffers), 2)
    (address, size), *others = buffers
    with pytest.raises(ValueError, match=f"src: expected {size} bytes, got {size - 1}"):
        _kernels.raw_call(target, region.attributes, [(address, size - 1), *others])


@pytest.mark.parametrize("width", [80, 200])
def test_results_are_readable_at_any_width(width: int, results: Results) -> None:
    entry = micro.described(make_case("conv_bias_relu", "n=1,c=64,h=56,w=56,k=64,r=3", "f32", "channels-last"))
    times = {"stock": 9.6e-4, "xla-onednn": 5e-4, "ours": 4.6e-4, "always": 4.5e-4, "raw": 4.4e-4, "torch": 5e-4}
    entry["sides"] = {side: {"samples": [seconds]} for side, seconds in times.items()}
    console = Console(file=StringIO(), width=width)
    print_micro(console, results.header, [entry])
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for text in ("conv_bias_relu n=1,c=64,h=56,w=56,k=64,r=3 f32", "XLA's oneDNN", "960 µs", "over stock", "2.09x"):
        assert any(text in line for line in lines)
