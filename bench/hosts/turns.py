"""Turns of peers that run in processes of their own: drift of the machine affects all of them equally.

A peer's process prints a JSON object of facts, or the word `ready`, when its programs are compiled. For each line that
it is given it runs them, and answers with a line of times.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Run = tuple[float, float]
"""Milliseconds of a run until its result is ready: of the clock, and of all threads of its process together."""


def answer_turns(facts: Mapping[str, str], programs: Mapping[str, Callable[[], object]], runs: int) -> None:
    """In a peer's process: say the facts, then run every program in each turn, once and then `runs` times.

    A program returns when its result is ready.
    """
    print(json.dumps(dict(facts)), flush=True)
    for turn, _ in enumerate(sys.stdin):
        order = list(programs)[:: 1 if turn % 2 == 0 else -1]
        print(json.dumps({name: _runs(programs[name], runs) for name in order}), flush=True)


def _runs(program: Callable[[], object], runs: int) -> list[Run]:
    program()
    times: list[Run] = []
    for _ in range(runs):
        begin, spent = time.perf_counter(), time.process_time()
        result = program()
        milliseconds = 1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - spent)
        times.append(milliseconds)
        del result
    return times


@dataclass
class HostProcess:
    """A process that answers turns, and the facts and the times that it has answered so far."""

    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    name: str = ""
    """Of the only program of a process that does not name its programs."""
    facts: dict[str, str] = field(default_factory=dict[str, str])
    turns: list[dict[str, list[Run]]] = field(default_factory=list[dict[str, list[Run]]])
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process, and wait until its programs are compiled.

        Raises:
            RuntimeError: it has ended instead.
        """
        self.process = subprocess.Popen(
            self.command, env=self.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        line = self._line()
        if line.startswith("{"):
            self.facts.update(json.loads(line))

    def turn(self) -> None:
        """Have every program run, while no other peer runs."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self._line()
        if line.startswith("{"):
            self.turns.append(
                {name: [(clock, spent) for clock, spent in runs] for name, runs in json.loads(line).items()}
            )
        else:
            numbers = [float(word) for word in line.split()]
            self.turns.append({self.name: list(zip(numbers[::2], numbers[1::2], strict=True))})

    def end(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.communicate()

    def _line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self.process.wait()}")
        return line


def table(peers: Sequence[HostProcess], reference: str) -> Iterator[str]:
    """A line for each program: median, least, processor time, and the median of its turns over the reference's."""
    every: dict[str, list[list[Run]]] = {}
    for peer in peers:
        for turn in peer.turns:
            for name, runs in turn.items():
                every.setdefault(name, []).append(runs)
    facts = {name: value for peer in peers for name, value in peer.facts.items()}
    medians = {name: [_median(runs) for runs in turns] for name, turns in every.items()}
    width = max(map(len, every), default=0)
    for name, turns in every.items():
        clocks, spent = zip(*(run for runs in turns for run in runs), strict=True)
        ratio = statistics.median(own / other for own, other in zip(medians[name], medians[reference], strict=True))
        yield (
            f"  {name:{width}} {statistics.median(clocks):8.2f} ms, least {min(clocks):8.2f}; processor"
            f" {min(spent):8.2f}; {ratio:5.2f} of {reference}; {facts.get(name, '')}".rstrip("; ")
        )


def _median(runs: Sequence[Run]) -> float:
    return statistics.median(clock for clock, _ in runs)
