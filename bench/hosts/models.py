"""Milliseconds and differences of one model in hosts that speak PJRT, against JAX with the pass and without it."""

# pyright: basic, reportArgumentType=false
from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from hlo_dispatch import kernels
from hlo_dispatch.demo.models import find
from hlo_dispatch.demo.timing import interleaved

MODELS = ("resnet50", "mobilenetv2", "bert-layer")
COMPILES = 3
"""Compiles before a program is timed: each measures what the one before had no time for."""


def export(folder: Path, name: str, options: dict[str, int], runs: int) -> None:
    """Write the program, its operands, JAX's result, and JAX's times with the pass and without it."""
    import jax

    import hlo_dispatch

    workload = find(name).workload(**options)
    # The example in C++ takes operands in f32: what is something else is a constant of the program.
    leaves, tree = jax.tree.flatten(workload.arguments)
    operands = {i: np.asarray(leaf) for i, leaf in enumerate(leaves) if np.asarray(leaf).dtype == np.float32}

    def program(*given):
        named = dict(zip(operands, given, strict=True))
        arguments = jax.tree.unflatten(tree, [named.get(i, leaf) for i, leaf in enumerate(leaves)])
        return workload.function(*arguments)

    values = [jax.numpy.asarray(value) for value in operands.values()]

    def lowered():
        return jax.jit(program, keep_unused=True).lower(*values)

    (folder / "program.mlir").write_text(str(lowered().compiler_ir("stablehlo")))
    np.savez(folder / "operands.npz", *operands.values())
    stock = lowered().compile()
    np.save(folder / "expected.npy", np.asarray(stock(*values)))
    with hlo_dispatch.enabled():
        for _ in range(COMPILES):
            dispatched = lowered().compile()
    programs = {
        "JAX": lambda: np.asarray(stock(*values)),
        "JAX, dispatched": lambda: np.asarray(dispatched(*values)),
    }
    print_found(milliseconds(programs, runs) | {"JAX, difference": difference(folder, dispatched(*values))})


def milliseconds(programs, runs: int) -> dict[str, str]:
    """Median and least milliseconds of each, in turns, and the least of all this process's threads together."""
    spent = {name: list[float]() for name in programs}

    def timed(name, run):
        begin = time.process_time()
        run()
        spent[name].append(time.process_time() - begin)

    times = interleaved(
        {name: partial(timed, name, run) for name, run in programs.items()}, seconds=math.inf, rounds=runs
    )
    return {
        name: f"{t.median * 1e3:.2f} ms, least {min(t.samples) * 1e3:.2f}; processor {min(spent[name]) * 1e3:.2f}"
        for name, t in times.items()
    }


def difference(folder: Path, result) -> str:
    """From JAX's, relative to its largest number."""
    expected = np.load(folder / "expected.npy")
    return f"{np.abs(np.asarray(result).reshape(expected.shape) - expected).max() / np.abs(expected).max():.1e}"


def print_found(found: dict[str, str]) -> None:
    for name, value in found.items():
        print(f"  {name}: {value}", flush=True)


def cpp_host(folder: Path, runtime: str, runs: int) -> None:
    """The example in C++: the runtime's own module, rewritten, compiled as it is."""
    import hlo_dispatch
    from hlo_dispatch.errors import Unavailable
    from hlo_dispatch.vendor import libraries

    source = Path(__file__).resolve().parents[2] / "kernels" / "examples" / "host"
    places = {
        "hlo_dispatch_kernels_DIR": kernels.cmake_path(),
        "XLA_FFI_INCLUDE_DIR": kernels.native_paths()["xla_include"],
    }
    build = folder / "build"
    defined = [f"-D{name}={path}" for name, path in places.items()]
    for command in (["cmake", "-S", source, "-B", build, *defined], ["cmake", "--build", build]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    libraries.leave_out("SciPy", "the example has no SciPy")
    optimized, rewritten = folder / "optimized.pb", folder / "rewritten.pb"
    subprocess.run([build / "host", runtime, "--optimize", folder / "program.mlir", optimized], check=True)
    for _ in range(COMPILES):
        made = hlo_dispatch.rewrite(optimized.read_bytes(), policy="measure", prepare_constants=True).proto
    rewritten.write_bytes(made or optimized.read_bytes())
    operands = []
    with np.load(folder / "operands.npz") as values:
        for name, value in values.items():
            value.tofile(folder / f"{name}.bin")
            operands.append(f"{'x'.join(map(str, value.shape))}:{folder / name}.bin")
    environment = dict(os.environ)
    for variable, library in (
        ("HLO_DISPATCH_ONEDNN_LIBRARY", libraries.onednn()),
        ("HLO_DISPATCH_MKL_LIBRARY", libraries.mkl()),
        ("HLO_DISPATCH_SVML_LIBRARY", libraries.svml()),
    ):
        if not isinstance(library, Unavailable):
            environment[variable] = str(library.path)
    for module in (optimized, rewritten):
        result = folder / "result.bin"
        command = [build / "host", runtime, "--runs", str(runs), module, result, *operands]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        name = f"C++, {module.stem}"
        print_found({name: done.stdout.strip(), f"{name}, difference": difference(folder, np.fromfile(result, "f4"))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--runtime", action="append", required=True)
    parser.add_argument("--size", type=int, help="pixels of an image's side, or tokens")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        folder = Path(options.folder)
        if options.step == "JAX":
            named = "tokens" if options.model == "bert-layer" else "size"
            export(folder, options.model, {named: options.size} if options.size else {}, options.runs)
        elif options.step == "C++":
            cpp_host(folder, options.runtime[0], options.runs)
        else:
            from hlo_dispatch.bench.hosts.client import clients

            clients(folder, options.runtime[0], options.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        for step, runtime in [("JAX", options.runtime[0]), *((s, r) for r in options.runtime for s in ("PJRT", "C++"))]:
            command = [sys.executable, "-m", "hlo_dispatch.bench.hosts.models", *sys.argv[1:]]
            print(step if step == "JAX" else f"{step}, {runtime}", flush=True)
            chosen = [options.model, "--step", step, "--folder", folder, "--runtime", runtime]
            chosen += ["--runs", str(options.runs), *(["--size", str(options.size)] if options.size else [])]
            subprocess.run([*command[:3], *chosen], check=True)


if __name__ == "__main__":
    main()
