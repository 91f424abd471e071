"""Keras' `predict` under `hlo-dispatch run`, beside Python alone, and beside the same program with a frozen model.

    python -m bench.automatic.predict [--application ResNet50] [--size 224] [--images 256] [--batch 32] [--rounds 4]

The three programs are there at the same time and predict in turns. Prints the seconds of the first prediction (which
compiles), of those of all rounds after the second one, and how far the results are from Python's own, over the largest.
The exit status is 1 where they are further than 1e-4.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.worker import clean_environment

FURTHEST = 1e-4
_PROGRAM = Path(__file__).with_name("predict_program.py")
_RUN = "from hlo_dispatch.cli.main import main; main()"
WAYS: dict[str, tuple[list[str], list[str]]] = {
    "python": ([str(_PROGRAM)], []),
    "hlo-dispatch run": (["-c", _RUN, "run", str(_PROGRAM)], []),
    "frozen": ([str(_PROGRAM)], ["frozen"]),
}
"""Arguments of Python, and further ones of the program."""


class _Process:
    """One program, which predicts on request."""

    def __init__(self, way: str, arguments: list[str]) -> None:
        before, behind = WAYS[way]
        self._process = subprocess.Popen(
            [sys.executable, *before, *arguments, *behind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )

    def predict(self) -> float:
        """Seconds of a prediction."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def results(self) -> np.ndarray:
        """The results of the latest one; ends the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        file = Path(self._line())
        results = np.load(file)
        shutil.rmtree(file.parent)
        return results

    def end(self) -> None:
        """End the program, whatever it does."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"a program ended with status {self._process.wait()}")
        return line


def measured(arguments: list[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, np.ndarray]]:
    """Seconds of each way's predictions, and its last results."""
    with contextlib.ExitStack() as stack:
        processes = {way: _Process(way, arguments) for way in WAYS}
        for process in processes.values():
            stack.callback(process.end)
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(rounds):
            for way in list(WAYS)[:: 1 if turn % 2 == 0 else -1]:
                seconds[way].append(processes[way].predict())
        return seconds, {way: process.results() for way, process in processes.items()}


def difference(results: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference over the largest value; of other shapes, or with a NaN, it is infinite."""
    if results.shape != wanted.shape or not np.isfinite(results).all():
        return np.inf
    return float(np.abs(results - wanted).max() / np.abs(wanted).max())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--application", default="ResNet50", help="of keras.applications")
    for name, default in (("--size", 224), ("--images", 256), ("--batch", 32), ("--rounds", 6)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    print("\n".join(header()))
    given = [options.application, *map(str, (options.size, options.images, options.batch))]
    seconds, results = measured(given, options.rounds)
    medians = {way: statistics.median(took[2:] or took) for way, took in seconds.items()}
    worst = 0.0
    for way, (first, *rest) in seconds.items():
        apart = difference(results[way], results["python"])
        worst = max(worst, apart)
        print(
            f"{way}: first {first:.2f} s, then {', '.join(f'{took:.2f}' for took in rest)}, median {medians[way]:.3f}, "
            f"least {min(seconds[way]):.3f}, {medians['python'] / medians[way]:.2f}x; difference {apart:.1e}"
        )
    raise SystemExit(1 if worst > FURTHEST else 0)


if __name__ == "__main__":
    main()
