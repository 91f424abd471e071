"""Every peer on every configuration, in turns: a process for each measurement, a file entry for each configuration.

An entry has one record for each peer and round, so a campaign can be stopped at any point and goes on there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from hlo_dispatch.bench.models.catalogue import OURS, Job
from hlo_dispatch.bench.results import Results
from hlo_dispatch.bench.worker import XLA_ONEDNN_FLAGS, clean_environment, with_flags

Say = Callable[[str], None]
ROUNDS = 3
TUNING = 30.0
"""Seconds that the pass may measure in, once for each configuration and before the first round."""
_BUDGET = "HLO_DISPATCH_MEASURE_SECONDS"


def run(
    jobs: Sequence[Job],
    results: Results,
    *,
    peers: Sequence[str],
    rounds: int = ROUNDS,
    seconds: float = 3.0,
    policy: str = "measure",
    tuning: float = TUNING,
    options: dict[str, int] | None = None,
    resume: bool = False,
    say: Say = lambda text: None,
) -> list[dict[str, Any]]:
    """Measure; after every process the file is written.

    Args:
        rounds: how often each peer is measured; the order is reversed from one round to the next.
        seconds: measuring time of each process, after compiling.
        policy: of the pass, for the peer "ours".
        options: for the models' builders, instead of their real sizes.
        resume: keep the rounds that the file has.

    Raises:
        KeyboardInterrupt: with everything that was measured in the file.
    """
    for number, job in enumerate(jobs, 1):
        entry = results.get(job.name) if resume else None
        entry = entry or {"name": job.name, "model": job.model, "dtype": job.dtype, "batch": job.batch, "peers": {}}
        entry.setdefault("failed", {})
        for turn in range(rounds):
            for peer in list(peers)[:: 1 if turn % 2 == 0 else -1]:
                records: list[dict[str, Any]] = entry["peers"].setdefault(peer, [])
                if len(records) > turn or peer in entry["failed"]:
                    continue
                say(f"{number} of {len(jobs)}: {job.name}, round {turn + 1} of {rounds}, {peer}")
                measure = (peer, job, options or {}, seconds, policy)
                if peer in OURS and policy == "measure" and not records and tuning:
                    _once(*measure, environment={_BUDGET: str(tuning)})
                record = _once(*measure, environment=_environment(peer))
                if isinstance(record, str):
                    entry["failed"][peer] = record
                    say(f"{job.name}, {peer}: {record}")
                else:
                    records.append(record)
                results.put(entry)
    return [entry for job in jobs if (entry := results.get(job.name))]


def _environment(peer: str) -> dict[str, str]:
    if peer == "xla-onednn":
        return with_flags(XLA_ONEDNN_FLAGS)
    # What tuning did not reach is not measured inside of what is timed.
    return {_BUDGET: "0"} if peer in OURS else {}


def _once(
    peer: str, job: Job, options: dict[str, int], seconds: float, policy: str, *, environment: dict[str, str]
) -> dict[str, Any] | str:
    """One measurement, or why there is none."""
    command = [sys.executable, "-m", f"{__package__}.process", peer, job.model, job.dtype, str(job.batch)]
    command += ["--seconds", str(seconds), "--policy", policy, "--options", json.dumps(options)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean_environment() | environment,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate()
        except BaseException:
            # Compilers that it started end with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode == 0 and out:
            record = json.loads(out.splitlines()[-1])
            record["samples"] = [round(sample, 7) for sample in record["samples"]]
            return record
        errors.seek(0)
        lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1][:300] if lines else 'no message'} (status {process.returncode})"
