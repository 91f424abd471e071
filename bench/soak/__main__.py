"""`python -m bench.soak`: processes and threads compile, run, check and drop a dozen programs against one store.

Every 20 seconds a random process is ended by `kill -9` and another one started. Exits 1 where a result was wrong, a
process crashed or stopped, a lock or a damaged store was left behind, or the memory of a process that lived to the end
was not level in the second half.

With `--loops COUNT` each program is a loop of so many calls of one kernel at a tiny size, dispatched without being
measured; every other process has one thread.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from hlo_dispatch.bench.soak.result import result, sentences
from hlo_dispatch.bench.soak.supervise import run

RESULTS = Path(__file__).resolve().parents[1] / "results" / "soak"


def main() -> int:
    """Run a soak, write its numbers and its figure, and say what it came to."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=16, help="of each process")
    parser.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loops", type=int, default=0, metavar="COUNT", help="loops of so many calls (50000, say)")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help="for soak.json and soak.png")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hlo_dispatch_soak_") as folder:
        soak = run(
            Path(folder),
            seconds=60 * arguments.minutes,
            processes=arguments.processes,
            threads=arguments.threads,
            kill_every=arguments.kill_every,
            seed=arguments.seed,
            loops=arguments.loops,
        )
        found = result(soak)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "soak.json").write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join([*found["header"], *sentences(found)]))
    try:
        from hlo_dispatch.bench.soak.figure import draw
    except ImportError as error:
        print(f"no figure: {error}")
    else:
        draw(found, arguments.output / "soak.png")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
