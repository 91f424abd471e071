"""JAX's own tests on a PJRT runtime alone and on the plugin above it: how many pass on each.

    python -m bench.hosts.jax_tests /path/of/jax --runtime /path/of/plugin.so --every 40

The folder is JAX's source of the installed version, which has `tests/`. xdist starts a process anew where a test ends
it.
"""

# pyright: basic
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from hlo_dispatch import kernels
from hlo_dispatch.bench.hosts.models import library_variables

FILES = ("linalg_test.py", "nn_test.py", "lax_test.py")
SAMPLE = """
import os

def pytest_collection_modifyitems(items):
    items[:] = items[int(os.environ["SAMPLE_FIRST"]) :: int(os.environ["SAMPLE_EVERY"])]
"""


def passed(source: Path, file: str, library: Path, folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """The outcome of each chosen test of a file, on one PJRT library."""
    (folder / "sampled.py").write_text(SAMPLE)
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    on_library = {"JAX_PLATFORMS": "hd", "PJRT_NAMES_AND_LIBRARY_PATHS": f"hd:{library}", "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "sampled", "-n", "1"]
    command += ["-o", "addopts=", f"--junitxml={report}", f"tests/{file}"]
    subprocess.run(command, cwd=source, check=False, env=os.environ | on_library | variables, stdout=subprocess.DEVNULL)
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [part.tag for part in case if part.tag in ("failure", "error", "skipped")]
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = bad[0] if bad else "passed"
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--runtime", required=True, type=Path)
    parser.add_argument("--every", type=int, default=1, help="every which test runs")
    parser.add_argument("--first", type=int, default=0, help="number of the first one, below --every: other samples")
    parser.add_argument("--cases", type=int, default=10, help="cases of each test that JAX generates")
    parser.add_argument("--file", action="append", choices=FILES)
    options = parser.parse_args()
    variables = {
        "JAX_NUM_GENERATED_CASES": str(options.cases),
        "SAMPLE_EVERY": str(options.every),
        "SAMPLE_FIRST": str(options.first),
        "HLO_DISPATCH_PJRT_RUNTIME": str(options.runtime),
        "HLO_DISPATCH_PYTHON": os.environ.get("HLO_DISPATCH_PYTHON", sys.executable),
        "HLO_DISPATCH_POLICY": os.environ.get("HLO_DISPATCH_POLICY", "always"),
        # A plugin that is installed finds them beside itself; that of a checkout does not.
        **library_variables(),
    }
    for file in options.file or FILES:
        with tempfile.TemporaryDirectory() as folder:
            found = {
                name: passed(options.source, file, library, Path(folder), variables)
                for name, library in (("runtime", options.runtime), ("plugin", Path(kernels.plugin_path())))
            }
        for name, outcomes in found.items():
            counts = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failure", "error", "skipped")}
            print(f"{file}, {name}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items() if count))
        lost = [test for test, how in found["runtime"].items() if how == "passed" != found["plugin"].get(test)]
        for test in lost:
            print(f"  passes on the runtime alone: {test}")
        for test in (test for test, how in found["plugin"].items() if how in ("failure", "error")):
            print(f"  fails on the plugin: {test}")


if __name__ == "__main__":
    main()
