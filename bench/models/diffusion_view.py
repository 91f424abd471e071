"""The command `bench diffusion`: the real pipeline in a process for each side, and images from measured parts."""

from __future__ import annotations

import json
import subprocess
import sys

from rich.text import Text

from hlo_dispatch.bench.models.catalogue import PEERS
from hlo_dispatch.bench.models.diffusion import STEPS, image_latency
from hlo_dispatch.bench.result_files import Results
from hlo_dispatch.bench.worker import clean_environment
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.report.terminal import console, make_table, row
from hlo_dispatch.report.wording import duration

_FRAMEWORK_NAMES = {"f32": "float32", "bf16": "bfloat16"}


class PipelineFailed(HloDispatchError):
    """The pipeline did not run; the message is its last word."""

    exit_status = 1


def run(results: Results, dtypes: tuple[str, ...], steps: int, *, narrow: bool, parts: Results | None) -> None:
    """Run, keep and print; `parts` are the results of `bench models`, for the latency of an image.

    Raises:
        PipelineFailed.
    """
    for dtype in dtypes:
        sides: dict[str, object] = {}
        for side in ("stock", "ours"):
            print(f"… the whole pipeline, {dtype}, {steps} steps, {side}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", f"{__package__}.diffusion", side, "--steps", str(steps)]
            command += ["--dtype", _FRAMEWORK_NAMES[dtype], *(["--narrow"] if narrow else [])]
            done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
            if done.returncode:
                words = done.stderr.strip().splitlines()[-1:] or ["no message"]
                raise PipelineFailed(f"the pipeline failed, {dtype}, {side}: {words[0]}")
            sides[side] = json.loads(done.stdout.splitlines()[-1])
        name = f"{'narrow pipeline' if narrow else 'pipeline'} {dtype} {steps} steps"
        results.put({"name": name, "dtype": dtype, "steps": steps, "narrow": narrow, "sides": sides})
    _print(results, dtypes, parts)


def _print(results: Results, dtypes: tuple[str, ...], parts: Results | None) -> None:
    out = console()
    table = make_table("name", "side", "first run", "second run", "kernels dispatched", "image's mean and deviation")
    for entry in results:
        for side, said in entry["sides"].items():
            times = duration(said["first_run"]), duration(said["second_run"])
            numbers = f"{said['mean']:.6f} {said['deviation']:.6f}"
            row(table, entry["name"], PEERS[side], *times, str(said["dispatched"]), numbers)
    out.print(table)
    for dtype in dtypes:
        for steps in STEPS:
            found = {peer: image_latency(parts or (), peer, dtype, steps) for peer in PEERS}
            said = [f"{PEERS[peer]} {duration(seconds)}" for peer, seconds in found.items() if seconds]
            if said:
                out.print(Text(f"an image of 512², {dtype}, {steps} steps, from its parts: {', '.join(said)}"))
    if parts is None:
        out.print(Text("an image's latency needs its parts: hlo-dispatch bench models unet text-encoder vae-decoder"))
