"""Hosts of the plugin that know no Python of ours: what they get when everything works, and when something fails."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from plugin_host import Host, Ran, fake_python

from hlo_dispatch import kernels

pytestmark = pytest.mark.any_processor


@pytest.fixture(scope="module")
def dispatched(tmp_path_factory: pytest.TempPathFactory, any_runtime: Path) -> Ran:
    """A host that does everything that is dispatched: it starts one rewriter."""
    return Host(tmp_path_factory.mktemp("host"), any_runtime).run("twice", "archive", "fork")


def test_a_product_is_dispatched(dispatched: Ran) -> None:
    assert (dispatched["dispatched"], dispatched["failed"], dispatched["failure"]) == (4, 0, "")
    assert dispatched["compared"] == 4
    assert dispatched["oneDNN"]


def test_the_host_sees_no_process_of_ours(dispatched: Ran) -> None:
    """Before a fork and behind it."""
    assert dispatched["forked"] == 7
    assert (dispatched["signals"], dispatched["children"]) == (0, None)


def test_serialized_executables(dispatched: Ran) -> None:
    """They run where all agrees; else the error says what does not."""
    version, other, headless, short, shortest = dispatched["said"]
    assert "; hlo-dispatch " in version
    assert "POLICY=always" in version
    assert "this executable was compiled with hlo-dispatch=9." in other
    assert headless == "hlo-dispatch's PJRT plugin has not written this executable"
    assert "compile it anew" in short
    assert "ends too early" in shortest


def test_structs_of_an_older_client(tmp_path: Path, other_runtime: Path) -> None:
    ran = Host(tmp_path, other_runtime).run("old")
    assert (ran["dispatched"], ran["compared"]) == (1, 1)


def test_the_policy_never_starts_nothing(host: Host) -> None:
    ran = host.run(HLO_DISPATCH_POLICY="never", HLO_DISPATCH_PYTHON="/nowhere")
    assert (ran["dispatched"], ran["unchanged"], ran["failed"], ran["compared"]) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        ("/nowhere/python", "HLO_DISPATCH_PYTHON names /nowhere/python, which is no absolute path of a program"),
        ("python3", "HLO_DISPATCH_PYTHON names python3, which is no absolute path of a program"),
        ("", "there is no Python beside"),
    ],
)
def test_without_an_interpreter_the_program_is_stock(host: Host, python: str, sentence: str) -> None:
    if not python and Path(kernels.plugin_path()).parents[1].name == "site-packages":
        pytest.skip("the plugin is installed, and has its interpreter beside it")
    ran = host.run("twice", HLO_DISPATCH_PYTHON=python)
    assert (ran["dispatched"], ran["failed"], ran["compared"]) == (0, 2, 2)
    assert sentence in ran["failure"]
    assert ran.errors.count("hlo-dispatch: a program was not dispatched") == 1


HELLO = """
import os, socket, struct
plugin = socket.socket(fileno=3)
socket.send_fds(plugin, [struct.pack("=IIQ", 3, 0, 0)], [os.pidfd_open(os.getpid())])
"""
FAILING = {
    "it is killed as it starts": ("import os; os.kill(os.getpid(), 9)", "failed as standard error says ("),
    "it ends in the middle": (HELLO + "plugin.recv(16); os.kill(os.getpid(), 9)", "it was killed, or failed as"),
    "it does not answer": (HELLO + "import time; time.sleep(60)", "did not answer within 1 s"),
    "another version": (
        HELLO.replace('"=IIQ", 3', '"=IIQ", 9'), "the rewriter is another version's: install the same hlo-dispatch"
    ),
    "nonsense": (
        HELLO + "socket.send_fds(plugin, [struct.pack('=IIQ', 3, 3, 9)], [os.memfd_create('x')]); plugin.recv(16)",
        "the rewriter's answer is not understood"
    ),
    "no module": (
        HELLO + "f = os.memfd_create('x'); os.write(f, b'nonsense')\n"
        "while plugin.recv(16): socket.send_fds(plugin, [struct.pack('=IIQ', 3, 3, 8)], [f])",
        "the runtime does not compile the dispatched module",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILING)
def test_a_rewriter_that_fails_leaves_stock(host: Host, what: str) -> None:
    body, sentence = FAILING[what]
    python = fake_python(host.folder, body)
    ran = host.run("twice", HLO_DISPATCH_PYTHON=python, HLO_DISPATCH_PJRT_SECONDS="1")
    assert (ran["dispatched"], ran["failed"], ran["compared"]) == (0, 2, 2)
    assert sentence in ran["failure"]


@pytest.mark.parametrize(
    ("hidden", "sentence"),
    [
        ("hlo_dispatch", "has no hlo-dispatch that can be imported: No module named"),
        ("yaml", "lacks what hlo-dispatch needs: import of yaml halted"),
    ],
)
def test_an_interpreter_without_a_package(host: Host, hidden: str, sentence: str) -> None:
    """The sentence names the interpreter and what it lacks."""
    body = f"import sys; sys.modules[{hidden!r}] = None; program = sys.argv[3]; del sys.argv[1:4]; exec(program)"
    python = fake_python(host.folder, body, flags="")
    ran = host.run("twice", HLO_DISPATCH_PYTHON=python)
    assert (ran["dispatched"], ran["failed"], ran["compared"]) == (0, 2, 2)
    assert sentence in ran["failure"]
    assert sys.executable in ran["failure"] or python in ran["failure"]


def test_a_rewriter_that_is_killed_at_work(host: Host) -> None:
    """A real one, behind the first half of a program."""
    body = (
        "import os, sys\nprogram = sys.argv[3]; del sys.argv[1:4]\n"
        "from hlo_dispatch.pjrt_plugin.verification import Verification\n"
        "Verification.problem = lambda *_, **__: os.kill(os.getpid(), 9)\nexec(program)"
    )
    ran = host.run("twice", HLO_DISPATCH_PYTHON=fake_python(host.folder, body, flags=""))
    assert (ran["dispatched"], ran["failed"], ran["compared"]) == (0, 2, 2)
    assert "it was killed" in ran["failure"]


def test_a_module_of_200_megabytes(host: Host) -> None:
    """It reaches the rewriter whole."""
    table = np.tile(np.random.default_rng(0).random(1000, np.float32), 50_000)
    table[0] = 0

    def program(x: Any, w: Any) -> Any:
        place = (x[0, 0] > 1e9).astype(int)
        return jax.nn.relu(x @ w) + jax.lax.dynamic_slice(table, (place,), (1,))

    operands = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 48), (48, 80)))
    module = jax.jit(program).lower(*operands).compiler_ir("hlo")
    size = host.folder / "size"
    body = HELLO + (
        "received = socket.recv_fds(plugin, 16, 1)\n"
        f"open({str(size)!r}, 'w').write(str(struct.unpack('=IIQ', received[0])[2]))\n"
        "socket.send_fds(plugin, [struct.pack('=IIQ', 3, 2, 0)], [0])\nplugin.recv(16)"
    )
    ran = host.run(HLO_DISPATCH_PYTHON=fake_python(host.folder, body), module=module.as_serialized_hlo_module_proto())
    assert (ran["unchanged"], ran["failed"], ran["compared"]) == (1, 0, 1)
    assert int(size.read_text()) > table.nbytes


def test_the_environment_of_the_rewriter(host: Host) -> None:
    """It is the host's, but would not load the plugin in turn; and of the host's descriptors it has none."""
    told = host.folder / "told"
    body = (
        "import json, os, sys\n"
        f"json.dump([dict(os.environ), sys.argv, os.listdir('/proc/self/fd'), os.getsid(0) == os.getpid()],"
        f" open({str(told)!r}, 'w'))"
    )
    host.run(HLO_DISPATCH_PYTHON=fake_python(host.folder, body), PJRT_NAMES_AND_LIBRARY_PATHS="x:/y", ANYTHING="1")
    environment, words, descriptors, is_alone = json.loads(told.read_text())
    assert (environment["JAX_PLATFORMS"], environment["HLO_DISPATCH"], environment["ANYTHING"]) == ("cpu", "0", "1")
    assert "PJRT_NAMES_AND_LIBRARY_PATHS" not in environment
    assert environment["HLO_DISPATCH_PJRT_RUNTIME"] == str(Path(host.runtime).resolve())
    assert words[1:3] == ["-P", "-c"]
    # The three streams, the socket, the file, and the folder that is listed.
    assert len(descriptors) <= 6
    assert is_alone


ATTENTION = """
import sys
import numpy as np
from hlo_dispatch.bench.hosts.client import optimized_program
from hlo_dispatch.pjrt_plugin.c_client import CClient
folder = sys.argv[2]
client = CClient(sys.argv[1], backend_only=False)
executable = client.compile(open(f"{folder}/program.mlir", "rb").read(), "mlir")
with np.load(f"{folder}/operands.npz") as operands:
    (result,) = client.execute(executable, list(operands.values()), ["f32"] * 3, 1)
np.save(f"{folder}/result.npy", np.frombuffer(result, np.float32))
print(optimized_program(client, executable).count(b"hlo_dispatch.own.attention"))
"""


def test_attention_is_one_call(host: Host) -> None:
    """Under the runtime's own options its XLA leaves a maximum with -inf behind the peaks of scores."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ jax.numpy.swapaxes(k, -1, -2) / 8) @ v

    operands = np.random.default_rng(0).standard_normal((3, 2, 4, 50, 64), np.float32)
    (host.folder / "program.mlir").write_text(str(jax.jit(attention).lower(*operands).compiler_ir("stablehlo")))
    np.savez(host.folder / "operands.npz", *operands)
    command = [sys.executable, "-c", ATTENTION, kernels.plugin_path(), host.folder]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=host.environment(), cwd=host.folder, timeout=120
    )
    assert done.stdout.split() == ["1"], done.stderr
    scores = np.einsum("bhqc,bhkc->bhqk", *operands[:2].astype(np.float64)) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ operands[2]
    np.testing.assert_allclose(np.load(host.folder / "result.npy").reshape(expected.shape), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("runtime_path", "sentence"),
    [
        ("/nowhere.so", "names /nowhere.so, which is no absolute path of a file"),
        (str(kernels.plugin_path()), "names this plugin itself"),
        (str(kernels.library_path()), "is no PJRT plugin: it has no GetPjrtApi"),
    ],
)
def test_a_runtime_that_is_none(runtime_path: str, sentence: str) -> None:
    """The table is there all the same, and its first function says what is wrong."""
    assert sentence in _said_of(runtime_path)


def test_a_runtime_of_another_major_version(tmp_path: Path) -> None:
    source, library = tmp_path / "next.c", tmp_path / "libnext.so"
    source.write_text(
        "static struct { unsigned long size; void *more; unsigned long its_size; void *its_more; int major, minor;"
        " void *functions[200]; } api = {sizeof api, 0, 24, 0, 1, 7, {0}};\nvoid *GetPjrtApi(void) { return &api; }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert "libnext.so has PJRT 1.7; this plugin hands on version 0" in _said_of(library)


def _said_of(runtime_path: str | Path) -> str:
    """What a client of the plugin on this runtime is told."""
    code = (
        "import sys; from hlo_dispatch.pjrt_plugin.c_client import CClient, PjrtError\n"
        "try: CClient(sys.argv[1])\n"
        "except PjrtError as error: print(error)"
    )
    environment = Host(Path(), runtime_path).environment()
    command = [sys.executable, "-c", code, kernels.plugin_path()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("flags", "asked", "devices"),
    [
        ("", None, 1),
        ("--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=3", None, 3),
        ("--xla_force_host_platform_device_count=3", 1, 1),
        ("--xla_force_host_platform_device_count=3", 2, 2),
    ],
)
def test_devices(any_runtime: Path, other_runtime: Path, flags: str, asked: int | None, devices: int) -> None:
    """One, as other CPU clients have, unless the host or XLA_FLAGS ask for more.

    torch_xla compiles for all of a client's devices, runs on one, and a second program would wait for the others.
    """
    code = (
        "import json, sys; from hlo_dispatch.pjrt_plugin.c_client import CClient\n"
        "client = CClient(sys.argv[1], devices=json.loads(sys.argv[2])); print(client.call(16, client.client)[4])"
    )
    for runtime in (any_runtime, other_runtime):
        environment = Host(Path(), runtime).environment(XLA_FLAGS=flags)
        command = [sys.executable, "-c", code, kernels.plugin_path(), json.dumps(asked)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
        assert done.stdout.split() == [str(devices)], done.stderr


def test_eight_hosts_at_once(tmp_path: Path, any_runtime: Path) -> None:
    """With a rewriter of their own each; these answer at once that there is nothing to do.

    Each program's answer is waited for longer than two minutes: by a multiple of its compile time.
    """
    body = (
        HELLO + "import time\nwhile (got := socket.recv_fds(plugin, 16, 1))[0]:\n"
        "  size = struct.unpack('=IIQ', got[0])[2]\n"
        "  lines = dict(line.split(b'=') for line in os.pread(got[1][0], 1 << 20, size).splitlines())\n"
        "  time_limit, left = int(lines[b'time_limit']), int(lines[b'deadline']) - 1000 * time.monotonic()\n"
        "  if time_limit > 120_000 and left <= time_limit:\n"
        "    socket.send_fds(plugin, [struct.pack('=IIQ', 3, 2, 0)], [0])\n"
    )

    def run(number: int) -> int:
        folder = tmp_path / str(number)
        folder.mkdir()
        return Host(folder, any_runtime).run("twice", HLO_DISPATCH_PYTHON=fake_python(folder, body))["unchanged"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [2] * 8
