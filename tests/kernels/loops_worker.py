"""Runs a call of every kernel in a loop, in one thread and then in many: `python loops_worker.py COUNT THREADS`.

Prints the name of each before it begins, so that whoever waits in vain knows which one it is.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from call_worker import DTYPES, attributes, register, values
from wire_calls import WireCall, valid_calls

from hlo_dispatch.vendor import kernels


def loop(call: WireCall, count: int) -> Any:
    """The call so many times, compiled, and its operands; None where this processor cannot run it."""
    library = kernels.library(call.name)
    shapes = [jax.ShapeDtypeStruct(tuple(array.dims), DTYPES[array.type]) for array in call.results]
    wire = attributes(call.attributes, library.version)
    # Which is what keeps the call in the loop, though nothing of it changes.
    function = jax.ffi.ffi_call(f"hlo_dispatch.{call.name}", shapes, has_side_effect=True)

    def run(*operands: Any) -> Any:
        def step(_: Any, results: Any) -> Any:
            return tuple(function(*operands, **wire))

        return jax.lax.fori_loop(0, count, step, tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes))

    given = [values(array, number) for number, array in enumerate(call.operands)]
    try:
        return jax.jit(run).lower(*given).compile(), given
    except jax.errors.JaxRuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        return None


def main() -> None:
    count, threads = int(sys.argv[1]), int(sys.argv[2])
    jax.config.update("jax_enable_x64", True)
    register()
    with ThreadPoolExecutor(threads) as pool:
        for call in {call.name: call for call in valid_calls()}.values():
            print(call.name, flush=True)
            made = loop(call, count)
            if made is None:
                continue
            compiled, given = made
            jax.block_until_ready(compiled(*given))
            running = [pool.submit(compiled, *given) for _ in range(threads)]
            jax.block_until_ready([each.result() for each in running])


if __name__ == "__main__":
    main()
