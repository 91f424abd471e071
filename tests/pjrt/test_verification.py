"""What makes a rewritten module one that is not used, without a runtime."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_host import PRODUCT

from hlo_dispatch.autotune.compare.timing import Time, paired
from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.text import from_text
from hlo_dispatch.pjrt_plugin.channel import CompileRequest
from hlo_dispatch.pjrt_plugin.trial import DISTURBED, SLOWER, verdict
from hlo_dispatch.pjrt_plugin.verification import Verification
from hlo_dispatch.pjrt_plugin.verifier import verify

STOCK, REWRITTEN = from_text(PRODUCT), b"rewritten"


class FakeClient:
    """Computes the product, and something else for the rewritten module."""

    def __init__(self, rewritten: Callable[[Any], Any], stock: Callable[[Any], Any] = lambda x: x) -> None:
        self.changes = {STOCK: stock, REWRITTEN: rewritten}
        self.runs = 0

    def loaded(self, module: bytes, options: bytes) -> AbstractContextManager[bytes]:
        return nullcontext(module)

    def execute(self, module: bytes, inputs: Sequence[Any], types: Sequence[str], results: int) -> list[bytes]:
        assert (list(types), results) == (["f32", "f32"], 1)
        self.runs += 1
        product = np.maximum(inputs[0] @ inputs[1], 0)
        return [self.changes[module](product).astype(np.float32).tobytes()]


def root(x: Any) -> Any:
    """Of mixed values, NaN; of positive ones, finite."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(x - 1e-3)


def inverse(x: Any) -> Any:
    """Of zeros, infinite."""
    with np.errstate(divide="ignore"):
        return 1 / x


def nan(x: Any) -> Any:
    return x * np.nan


@pytest.mark.parametrize(
    ("rewritten", "stock", "runs", "verdict"),
    [
        (lambda x: x * (1 + 1e-6), lambda x: x, 2, ""),
        (lambda x: x * 1.01, lambda x: x, 2, "result 0 differs from stock's by 0.01 of its largest value"),
        (lambda x: np.where(x == x.max(), np.nan, x), lambda x: x, 2, "result 0 differs from stock's by inf"),
        (root, root, 6, ""),
        (lambda x: np.nan_to_num(root(x), nan=0), root, 6, ""),
        (lambda x: np.nan_to_num(inverse(x), posinf=0), inverse, 2, "result 0 differs from stock's by inf"),
        (lambda x: root(x) * 1.01, root, 2, "result 0 differs"),
        (nan, nan, 6, "its results are not finite on random inputs"),
    ],
)
def test_verdicts(rewritten: Any, stock: Any, runs: int, verdict: str) -> None:
    client = FakeClient(rewritten, stock)
    said = verify(client, STOCK, REWRITTEN)  # pyright: ignore[reportArgumentType]
    assert said.startswith(verdict)
    assert bool(said) == bool(verdict)
    assert client.runs == runs


def test_results_that_rounding_decides_are_not_compared() -> None:
    """A hundred dense layers of random weights: what they give says nothing, but for weights that keep sizes."""

    def winner(x: Any) -> Any:
        """The largest of a row among thousands of times as large ones."""
        scores = x.astype(np.float64) * (1e12 if np.abs(x).max() > 1 else 1)
        return np.exp(scores - scores.max(-1, keepdims=True)) + 1e-3 * np.sin(scores)

    client = FakeClient(lambda x: winner(x * np.float32(1 + 1e-6)), winner)
    assert verify(client, STOCK, REWRITTEN) == ""  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("answers", "time_limit", "problem", "is_kept"),
    [
        (r"print('.\n.\n', flush=True)", 1000, "", True),
        (r"print('.\nit is wrong', flush=True)", 1000, "it is wrong", False),
        (f"print('.'); print({SLOWER!r}, ': 3 ms', flush=True)", 1000, SLOWER, True),
        (f"print('.'); print({SLOWER!r}, ': 3 ms', {DISTURBED!r}, flush=True)", 1000, SLOWER, False),
        (
            r"print('.', flush=True); os._exit(3)",
            1000,
            "the runtime ended while it compiled and ran both modules",
            False,
        ),
        ("pass", 0.01, "it did not run within", False),
    ],
)
def test_answers_of_the_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: str, time_limit: float, problem: str, is_kept: bool
) -> None:
    """Progress, then a verdict; what has no end has the time that the host is ready to wait.

    A later process finds what another trial would not change.
    """
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    verifier = (sys.executable, "-S", "-c", f"import os, sys, time; sys.stdin.readline(); {answers}; time.sleep(600)")
    request = CompileRequest(STOCK, 1, b"", time_limit, time.monotonic() + time_limit)
    verification = Verification("a runtime", verifier)
    said = verification.problem(request, REWRITTEN, timed=True)
    verification.end()
    assert said.startswith(problem)
    assert bool(said) == bool(problem)
    assert len(list((tmp_path / "pjrt_verified").glob("*"))) == is_kept
    later = Verification("a runtime", (sys.executable, "-c", "import sys; sys.stdin.readline(); print('anew')"))
    assert later.problem(request, REWRITTEN, timed=True) == (said if is_kept or time_limit < 1 else "anew")
    later.end()


TURNS = 12


def timed(milliseconds: float, disturbed: bool = False) -> Time:
    """Of a program beside one that takes 10 ms, a little different in each turn."""
    noise = [1 + 0.003 * (turn * 7 % 5 - 2) for turn in range(TURNS)]
    found = paired([0.01 * n for n in noise], [1e-3 * milliseconds * n for n in noise[::-1]], 5)
    return replace(found, is_disturbed=disturbed, least=1e-3 * milliseconds)


@pytest.mark.parametrize(
    ("milliseconds", "disturbed", "processor", "loses"),
    [
        (7, False, 30, False), (10, False, 30, False), (11, False, 10, True),
        (10.3, True, 30, False), (14, True, 30, True), (14, True, 15, False),
    ],
)  # fmt: skip
def test_verdicts_of_a_trial(milliseconds: float, disturbed: bool, processor: float, loses: bool) -> None:
    """On a busy machine, what all threads together take counts as well."""
    said = verdict(timed(10), timed(milliseconds, disturbed), 20e-3, 1e-3 * processor)
    assert said.startswith(SLOWER) == bool(said) == loses
    assert said.endswith(DISTURBED) == (loses and disturbed)


class TimedClient(FakeClient):
    """Takes longer for one of the modules."""

    def __init__(self, seconds: dict[bytes, float]) -> None:
        super().__init__(lambda x: x)
        self.seconds = seconds

    def uploaded(self, inputs: Sequence[Any], types: Sequence[str]) -> AbstractContextManager[list[list[int]]]:
        return nullcontext([[1, 2]])

    def run_kept(self, module: bytes, operands: Sequence[Sequence[int]], results: int) -> None:
        assert (operands, results) == ([[1, 2]], 1)
        time.sleep(self.seconds[module])


@pytest.mark.timing
@pytest.mark.parametrize(("slower", "left", "sentence"), [(REWRITTEN, 60, SLOWER), (STOCK, 60, ""), (REWRITTEN, 0, "")])
def test_a_module_that_is_slower_on_the_runtime(slower: bytes, left: float, sentence: str) -> None:
    """It is refused where there is time to know."""
    client = TimedClient({STOCK: 0.01, REWRITTEN: 0.01} | {slower: 0.02})
    said = verify(client, STOCK, REWRITTEN, seconds_left=lambda: left)  # pyright: ignore[reportArgumentType]
    assert said.startswith(sentence)
    assert bool(said) == bool(sentence)


def test_operands_of_few_bits_are_not_compared() -> None:
    module = from_text("HloModule few\n\nENTRY main {\n  ROOT x = s4[8]{0:E(4)} parameter(0)\n}\n")
    said = verify(FakeClient(lambda x: x), module, REWRITTEN)  # pyright: ignore[reportArgumentType]
    assert said == "its operands or results are no plain arrays"


def test_results_of_another_layout_are_not_compared() -> None:
    """The runtime is given no layouts with a module."""
    module = from_text(
        PRODUCT.replace(
            "HloModule product",
            "HloModule product, entry_computation_layout={(f32[64,48]{0,1}, f32[48,80]{1,0})->f32[64,80]{1,0}}",
        ).replace("x = f32[64,48] parameter", "x = f32[64,48]{0,1} parameter")
    )
    with pytest.raises(ModuleError, match=r"argument 0 of this module is .*row-major"):
        verify(FakeClient(lambda x: x), module, REWRITTEN)  # pyright: ignore[reportArgumentType]
