"""Milliseconds and differences of models in hosts that speak PJRT, against JAX with the pass and without it.

    python -m bench.hosts.models resnet50 mobilenetv2 bert-layer --runtime /path/of/plugin.so [--runtime ...]

For each model there are processes that run in turns: JAX's; for each runtime one with clients of it alone and of the
plugin above it, by our client and, where it is installed, by pypjrt; JAX with these two as its backends; and the
example in C++, which runs the module that the runtime optimized, and that module rewritten. A time is that of a program
until its result is ready; what copies it to the host is not the program's. All clients have one device.
"""

# pyright: basic, reportArgumentType=false
from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from hlo_dispatch import kernels
from hlo_dispatch.bench.header import header
from hlo_dispatch.bench.hosts.turns import HostProcess, answer_turns, table
from hlo_dispatch.demo.models import find

MODELS = ("resnet50", "mobilenetv2", "bert-layer")
COMPILES = 4
"""Compiles before a program is timed: each measures what the one before had no time for."""
REFERENCE = "JAX, dispatched"


def program_of(name: str, options: dict[str, int]):
    """A function of a model's operands, and the operands.

    The example in C++ takes operands in f32: what is something else is a constant of the program.
    """
    import jax

    workload = find(name).workload(**options)
    leaves, tree = jax.tree.flatten(workload.arguments)
    operands = {i: np.asarray(leaf) for i, leaf in enumerate(leaves) if np.asarray(leaf).dtype == np.float32}

    def program(*given):
        named = dict(zip(operands, given, strict=True))
        arguments = jax.tree.unflatten(tree, [named.get(i, leaf) for i, leaf in enumerate(leaves)])
        return workload.function(*arguments)

    return program, list(operands.values())


def in_jax(folder: Path, name: str, options: dict[str, int], runs: int) -> None:
    """Write the program, its operands and JAX's result; then run it with the pass and without it."""
    import jax

    import hlo_dispatch

    program, operands = program_of(name, options)
    values = [jax.numpy.asarray(value) for value in operands]

    def lowered():
        return jax.jit(program, keep_unused=True).lower(*values)

    (folder / "program.mlir").write_text(str(lowered().compiler_ir("stablehlo")))
    np.savez(folder / "operands.npz", *operands)
    stock = lowered().compile()
    np.save(folder / "expected.npy", np.asarray(stock(*values)))
    with hlo_dispatch.enabled():
        for _ in range(COMPILES):
            dispatched = lowered().compile()
    programs = {
        "JAX": lambda: stock(*values).block_until_ready(),
        REFERENCE: lambda: dispatched(*values).block_until_ready(),
    }
    answer_turns({REFERENCE: fact(folder, dispatched(*values), calls_of(dispatched))}, programs, runs)


def in_jax_on_plugin(folder: Path, name: str, options: dict[str, int], runs: int, number: str) -> None:
    """Run the program by JAX whose backend is the plugin, or the runtime alone; `number` is the runtime's."""
    import jax

    with jax.default_device(jax.devices("cpu")[0]):
        program, operands = program_of(name, options)
    programs, facts = {}, {}
    for backend in ("runtime", "plugin"):
        with jax.default_device(jax.devices(backend)[0]):
            values = [jax.device_put(value, jax.devices(backend)[0]) for value in operands]
            for _ in range(COMPILES):
                compiled = jax.jit(program, keep_unused=True).lower(*values).compile()
            title = f"{number}: JAX on the {backend}"
            programs[title] = lambda compiled=compiled, values=values: compiled(*values).block_until_ready()
            facts[title] = fact(folder, compiled(*values), calls_of(compiled))
    answer_turns(facts, programs, runs)


def calls_of(compiled) -> int:
    """How many kernel calls of ours a compiled function of JAX's has."""
    return str(compiled.as_text()).count('custom_call_target="hlo_dispatch.')


def fact(folder: Path, result, calls: int | None = None) -> str:
    """The result's difference from JAX's, relative to its largest number, and how many calls of ours made it."""
    expected = np.load(folder / "expected.npy")
    found = np.abs(np.asarray(result).reshape(expected.shape) - expected).max() / np.abs(expected).max()
    return f"difference {found:.1e}" + ("" if calls is None else f", {calls} calls")


def calls_in(module: bytes) -> int:
    """How many kernel calls of ours a serialized module has: field 28 of an instruction is its custom-call's target."""
    return len(re.findall(rb"\xe2\x01.hlo_dispatch\.", module, re.DOTALL))


def build_host(folder: Path) -> None:
    """Build the example in C++."""
    source = Path(__file__).resolve().parents[2] / "kernels" / "examples" / "host"
    places = {
        "hlo_dispatch_kernels_DIR": kernels.cmake_path(),
        "XLA_FFI_INCLUDE_DIR": kernels.native_paths()["xla_include"],
    }
    defined = [f"-D{name}={path}" for name, path in places.items()]
    for command in (["cmake", "-S", source, "-B", folder, *defined], ["cmake", "--build", folder]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def rewrite_for_host(optimized: Path, rewritten: Path) -> None:
    """Rewrite the module that a runtime optimized, as a user of the example does by the command."""
    import hlo_dispatch
    from hlo_dispatch.vendor import libraries

    libraries.leave_out("SciPy", "the example has no SciPy")
    for _ in range(COMPILES):
        made = hlo_dispatch.rewrite(optimized.read_bytes(), policy="measure", prepare_constants=True).proto
    rewritten.write_bytes(made or optimized.read_bytes())


def library_variables() -> dict[str, str]:
    """The variables that tell the example where the vendors' libraries are."""
    from hlo_dispatch.errors import Unavailable
    from hlo_dispatch.vendor import libraries

    found = {
        "HLO_DISPATCH_ONEDNN_LIBRARY": libraries.onednn(),
        "HLO_DISPATCH_MKL_LIBRARY": libraries.mkl(),
        "HLO_DISPATCH_SVML_LIBRARY": libraries.svml(),
    }
    return {name: str(library.path) for name, library in found.items() if not isinstance(library, Unavailable)}


def in_cpp(folder: Path, runtime: str, number: int, runs: int) -> list[HostProcess]:
    """The example on the runtime's own module and on that module rewritten; `folder` has the program and the host."""
    host, own = folder / "build" / "host", folder / str(number)
    own.mkdir()
    optimized, rewritten = own / "optimized.pb", own / "rewritten.pb"
    subprocess.run([host, runtime, "--optimize", folder / "program.mlir", optimized], check=True)
    subprocess.run([*_step("rewrite", folder), "--modules", optimized, rewritten], check=True)
    operands = []
    with np.load(folder / "operands.npz") as values:
        for name, value in values.items():
            value.tofile(folder / f"{name}.bin")
            operands.append(f"{'x'.join(map(str, value.shape))}:{folder / name}.bin")
    peers, environment = [], os.environ | library_variables()
    for module in (optimized, rewritten):
        result = module.with_suffix(".bin")
        command = [host, runtime, "--runs", str(runs), module, result, *operands]
        peer = HostProcess([str(word) for word in command], environment, f"{number}: C++, {module.stem}")
        peer.start()
        peer.facts[peer.name] = fact(folder, np.fromfile(result, "f4"), calls_in(module.read_bytes()))
        peers.append(peer)
    return peers


def _step(step: str, folder: Path) -> list[str]:
    """The command of one of this module's processes."""
    return [sys.executable, "-m", "hlo_dispatch.bench.hosts.models", "--step", step, "--folder", str(folder)]


def measure(model: str, runtimes: list[str], options: argparse.Namespace, folder: Path) -> None:
    """Start every peer of a model, have them run in turns, and print the table."""
    common = ["--runs", str(options.runs), *(["--size", str(options.size)] if options.size else [])]
    peers = [HostProcess([*_step("JAX", folder), model, *common])]
    try:
        peers[0].start()
        for number, runtime in enumerate(runtimes, start=1):
            here = ["--runtime", runtime, "--number", str(number)]
            peers.append(HostProcess([*_step("PJRT", folder), model, *common, *here]))
            peers[-1].start()
            libraries = f"runtime:{runtime},plugin:{kernels.plugin_path()}"
            on_plugin = {"PJRT_NAMES_AND_LIBRARY_PATHS": libraries, "JAX_PLATFORMS": "plugin,runtime,cpu"}
            on_plugin |= {"HLO_DISPATCH_PJRT_RUNTIME": runtime, "HLO_DISPATCH_PYTHON": sys.executable}
            command = [*_step("JAX on plugin", folder), model, *common, *here]
            peers.append(HostProcess(command, os.environ | on_plugin))
            peers[-1].start()
            peers += in_cpp(folder, runtime, number, options.runs)
        for turn in range(options.turns):
            for peer in peers[:: 1 if turn % 2 == 0 else -1]:
                peer.turn()
    finally:
        for peer in peers:
            peer.end()
    print(f"{model}, {options.turns} turns of {options.runs} runs", *table(peers, REFERENCE), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of the demo's; default: {' '.join(MODELS)}")
    parser.add_argument("--runtime", action="append", default=[])
    parser.add_argument("--size", type=int, help="pixels of an image's side, or tokens")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5, help="of each turn")
    for hidden in ("--folder", "--step", "--number"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--modules", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step in ("JAX", "JAX on plugin"):
        (model,) = options.models
        named = "tokens" if model == "bert-layer" else "size"
        given = Path(options.folder), model, {named: options.size} if options.size else {}, options.runs
        in_jax(*given) if options.step == "JAX" else in_jax_on_plugin(*given, options.number)
    elif options.step == "rewrite":
        rewrite_for_host(*options.modules)
    elif options.step == "PJRT":
        from hlo_dispatch.bench.hosts.client import in_clients

        in_clients(Path(options.folder), options.runtime[0], options.number, options.runs)
    else:
        if not options.runtime:
            parser.error("--runtime: name at least one")
        print(*header(), *(f"runtime {n}: {path}" for n, path in enumerate(options.runtime, 1)), sep="\n")
        with tempfile.TemporaryDirectory() as build:
            build_host(Path(build))
            for model in options.models or MODELS:
                with tempfile.TemporaryDirectory() as folder:
                    (Path(folder) / "build").symlink_to(build)
                    measure(model, options.runtime, options, Path(folder))


if __name__ == "__main__":
    main()
