"""Reorder scratch: bounded between calls, whatever ran at once, and freed with the executables."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
from calls import matmul_call, tensor

from environment import clean_environment
from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels

FOLDER = Path(__file__).parent
THREADS = 16
MOST_KEPT = 128 << 20
SLACK = 60 << 20
"""Of XLA's, of Python's and of oneDNN's own."""
COPY = 5000 * 1008 * 4
"""Bytes of the largest product's weights, 20 MB: all threads' together are well above what may be kept."""


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Product:
    """A product whose weights are copied in every call, and what it must come to."""

    def __init__(self, depth: int) -> None:
        random = np.random.default_rng(depth)
        source, weights = (random.integers(-2, 3, shape).astype(np.float32) for shape in ((70, depth), (depth, 1001)))
        call = matmul_call(tensor(source), tensor(weights))
        call.spec["weights_format"] = "any"
        planned = kernels.plan(call.name, call.spec)
        assert not isinstance(planned, Refusal)
        assert planned.reorders_weights
        self.operands = [jax.device_put(operand) for operand in call.operands]
        self.expected = source @ weights  # exact: small whole numbers
        self.compiled = call.compiled().lower(*self.operands).compile()

    def check(self) -> None:
        np.testing.assert_array_equal(np.asarray(self.compiled(*self.operands)), self.expected)


def run_at_once(products: list[Product], times: int) -> None:
    together = threading.Barrier(THREADS)

    def often(number: int) -> None:
        for time in range(times):
            together.wait(60)
            products[(number + time) % len(products)].check()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(often, range(THREADS)))


def observe() -> None:
    """In a process of its own: prints what is resident besides the operands, after each step."""
    kept_for_good = Product(333)
    # What oneDNN, XLA and the threads need for themselves is there from here on.
    run_at_once([kept_for_good], 3)
    before = resident()
    products = [Product(depth) for depth in (5000, 4999, 2500, 1111)]
    others = sum(operand.nbytes for product in products for operand in product.operands)
    others += sum(product.expected.nbytes for product in products)
    run_at_once(products, 8)
    print(resident() - before - others)
    products.clear()
    gc.collect()
    print(resident() - before)
    kept_for_good.check()


def test_bounded_and_given_back() -> None:
    command = [sys.executable, "-c", "import test_reorder_scratch; test_reorder_scratch.start()"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=environment(), cwd=FOLDER
    )
    assert done.returncode == 0, done.stderr
    idle, left = map(int, done.stdout.split())
    assert THREADS * COPY > MOST_KEPT + 2 * SLACK, "the bound would not be met"
    assert idle < MOST_KEPT + SLACK, f"{idle >> 20} MB are kept"
    assert left < SLACK, f"{left >> 20} MB are left"


def environment() -> dict[str, str]:
    """One in which sixteen threads execute at once, each in itself, and the C library keeps little of what is freed."""
    flags = {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "false", "MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "1000000"}
    return clean_environment(PYTHONPATH=f"{FOLDER}:{FOLDER.parent}", **flags)


def start() -> None:
    """What conftest.py does for the tests of this folder, and then the program."""
    jax.devices("cpu")
    found = kernels.registrations()
    for name, capsules in found.types.items():
        jax.ffi.register_ffi_type(name, capsules, platform="cpu")
    for name, stages in found.targets.items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")
    observe()
