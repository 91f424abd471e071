"""`python -m bench.zoo [MODEL ...]`: count anchors, print what is left behind and why.

--write puts the counts into tests/models/anchors.toml, --page writes the list as a page, --epilogues shows where
epilogues ended although an elementwise instruction follows, --numbers runs the small variants, dispatched against
stock.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.zoo import page, record
from hlo_dispatch.bench.zoo.count import Counts, capture, count, reasons
from hlo_dispatch.bench.zoo.epilogues import ends
from hlo_dispatch.bench.zoo.models import ZOO
from hlo_dispatch.bench.zoo.numbers import compare
from hlo_dispatch.report import Report


def main() -> int:
    """Count, or compare numbers, for the models named on the command line (all of them without names)."""
    parser = argparse.ArgumentParser(prog="python -m bench.zoo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(ZOO))
    parser.add_argument("--write", action="store_true", help="write the counts to tests/models/anchors.toml")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write what is taken of each model, and why not, as Markdown"
    )
    parser.add_argument("--epilogues", action="store_true", help="show where epilogues ended")
    parser.add_argument("--numbers", action="store_true", help="run small variants instead of counting")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the modules as FOLDER/MODEL.pb")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in ZOO]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known: {', '.join(ZOO)}")
    # Flax and transformers announce their own deprecations with every import.
    warnings.simplefilter("ignore")
    print("\n".join(header()), flush=True)
    names = arguments.models or list(ZOO)
    good, counted, rows = True, {}, []
    for name in names:
        try:
            if arguments.numbers:
                good = compare(name) and good
            else:
                counted[name], report = _count(name, arguments)
                rows.append(page.row(name, counted[name], report))
        # Whatever a framework raises: the other models are worth having.
        except Exception as error:
            good = False
            print(f"\n{name}: {type(error).__name__}: {error}", flush=True)
    if arguments.write:
        record.write(counted)
    if arguments.page:
        page.write(arguments.page, rows)
    return int(not good)


def _count(name: str, arguments: argparse.Namespace) -> tuple[Counts, Report]:
    begin = time.perf_counter()
    module = capture(ZOO[name].lowered())
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        (arguments.keep / f"{name}.pb").write_bytes(module)
    captured = time.perf_counter()
    counts, report = count(module)
    numbers = ", ".join(
        f"{counts.dispatched[opcode]} of {number} {opcode}s" for opcode, number in counts.anchors.items() if number
    )
    print(
        f"\n{name}: {numbers} dispatched ({report.instructions:,} instructions, "
        f"{captured - begin:.1f} s to the pass, pass {report.seconds:.2f} s)",
        flush=True,
    )
    for line in [*reasons(report), *(ends(module, report) if arguments.epilogues else ())]:
        print(line, flush=True)
    return counts, report


if __name__ == "__main__":
    sys.exit(main())
