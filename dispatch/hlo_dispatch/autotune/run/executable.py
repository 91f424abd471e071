"""Compiling and running a module exactly as it is: the only file of the policy room that knows jax.

XLA compiles no optimized HLO through JAX, but its hook takes whatever module a callback returns. So a program
of the same signature is compiled and, when the hook shows it, exchanged. Whoever is in JAX's hook passes what
it is shown to `substitution()` first: the stand-ins are known by their names, on whichever thread they come, so
a measurement inside a user's compile never meets our own pass.
"""

# pyright: basic, reportPrivateImportUsage=false
# jax has no complete type hints, and exports none of what is private.
from __future__ import annotations

import collections
import contextlib
import itertools
import os
import threading
from collections.abc import Generator, Sequence
from typing import Any

from hlo_dispatch.autotune.run.watchdog import wait_for
from hlo_dispatch.autotune.run.without_codegen import UNREGISTERED_TARGET, stopping_before_codegen
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of

_PLACEHOLDER = "hlo_dispatch_stand_in_"
_HOOK_NAME = "hlo_dispatch_stand_ins"
# A module's name is its first field.
_NAME_IS_WITHIN = 256
_numbers = itertools.count()
_modules: dict[bytes, bytes] = {}
"""Stand-in's token → what is to be compiled in its place."""
_seen: set[bytes] = set()
"""Tokens that came by."""
_lock = threading.RLock()
_is_substitution_relayed = False
"""Whether another callback in JAX's hook passes what it sees to `substitution()`."""
_is_hook_installed = False
"""Whether a callback of our own stays in JAX's hook."""
_substitutions: collections.Counter[bytes] = collections.Counter()
"""How many blocks have a module compiled in the place of each stand-in that JAX itself compiles."""
_captures: dict[bytes, list[bytes]] = {}
"""Token of a program of which somebody only wants to see the module → where it goes."""

_STABLEHLO = {
    "pred": "i1", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u8": "ui8", "u16": "ui16", "u32": "ui32",
    "u64": "ui64", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "c64": "complex<f32>",
    "c128": "complex<f64>", "s4": "i4", "u4": "ui4",
}  # fmt: skip


def substitution(serialized: bytes) -> tuple[bool, bytes | None]:
    """(whether the module is a stand-in, what XLA should compile instead)."""
    start = serialized.find(_PLACEHOLDER.encode(), 0, _NAME_IS_WITHIN)
    end = serialized.find(b"_end", start) if start >= 0 else -1
    awaited = _captures.get(serialized[start:end]) if end >= 0 else None
    if awaited is not None:
        # Whoever else is in the hook is shown what the first one made of it.
        if awaited:
            return True, None
        awaited.append(serialized)
        return True, stopping_before_codegen(serialized)
    # A user's function may be called like that, too.
    module = _modules.get(serialized[start:end]) if end >= 0 else None
    if module is None:
        return False, None
    _seen.add(serialized[start:end])
    return True, module


def relay() -> None:
    """Says that from now on somebody else in JAX's hook calls `substitution()`."""
    global _is_substitution_relayed
    _is_substitution_relayed = True


def install_substitution_hook() -> None:
    """See to it that stand-ins are exchanged from now on, whoever comes and goes.

    XLA's list of callbacks is not protected from threads that compile while it changes, so it changes once.
    """
    global _is_hook_installed
    import jax
    from jax.extend import xla

    jax.devices("cpu")
    with _lock:
        if not _is_hook_installed:
            xla.register_hlo_module_transformation(_substitution_or_none, name=_HOOK_NAME, platforms="cpu")
            _is_hook_installed = True


def _substitution_or_none(serialized: bytes) -> bytes | None:
    try:
        return substitution(serialized)[1]
    except Exception:  # it is shown what others compile, too; a stand-in that is left does not compile
        return None


def placeholder_name(what: str) -> str:
    """A name for a function that JAX compiles and that stands in for something; `what` is letters and digits."""
    return f"{_PLACEHOLDER}{what}_end"


def is_placeholder(module: str) -> bool:
    """Whether a module of this name is one that JAX compiles and another is to be compiled for."""
    return _PLACEHOLDER in module


@contextlib.contextmanager
def substituting_module(name: str, module: bytes) -> Generator[None]:
    """What JAX compiles under a `placeholder_name` inside the block is this serialized module."""
    token = _token(name)
    program = Module.from_bytes(module)
    # Whoever else is in the hook knows it by its name, too.
    program.proto.name = name
    with _lock:
        _substitutions[token] += 1
        _modules[token] = program.to_bytes()
    try:
        install_substitution_hook()
        yield
    finally:
        with _lock:
            _substitutions[token] -= 1
            if not _substitutions[token]:
                del _substitutions[token], _modules[token]
                _seen.discard(token)


@contextlib.contextmanager
def shown(name: str) -> Generator[list[bytes]]:
    """Gives a list to which what JAX compiles under a `placeholder_name` inside the block is added.

    No code is made for it: that would take longer than all before it, so compiling ends with an error, and the block.
    """
    modules: list[bytes] = []
    _captures[_token(name)] = modules
    try:
        install_substitution_hook()
        yield modules
    except Exception as error:
        if not modules or UNREGISTERED_TARGET not in str(error):
            raise
    finally:
        del _captures[_token(name)]


def _token(name: str) -> bytes:
    return name.removesuffix("_end").encode()


class Executable:
    """A compiled module; safe to call from several threads."""

    def __init__(self, serialized: bytes) -> None:
        """Compile a serialized HloModuleProto whose entry takes row-major arrays and returns one or a tuple.

        Raises:
            Exception: XLA does not compile it (whatever jaxlib raises), or no hook is in place.
        """
        # JAX's own way to an executable ends in the same call; in between stand its caches, which would mistake
        # the stand-in for a program.
        program = Module.from_bytes(serialized)
        signature = program.entry.program_shape
        results = signature.result.tuple_shapes or (signature.result,)
        token = f"{_PLACEHOLDER}{os.getpid()}_{next(_numbers)}".encode()
        program.proto.name = f"{token.decode()}_end"
        text = _placeholder_program(
            program.name,
            [shape_of(shape) for shape in signature.parameters],
            [shape_of(shape) for shape in results],
        )
        _modules[token] = program.to_bytes()
        try:
            # Inside of JAX's hook, where it must not change, somebody relays.
            if not _is_substitution_relayed:
                install_substitution_hook()
            self._loaded = compiled(text.encode())
            if token not in _seen:
                raise RuntimeError("JAX's hook did not show the stand-in: somebody took callbacks out of it")
        finally:
            del _modules[token]
            _seen.discard(token)

    def serialize(self) -> bytes:
        """It as bytes, which XLA of the same version loads on a machine like this one."""
        return self._loaded.serialize()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on jax arrays; returns when the results are there."""
        results = self._loaded.execute_sharded(arguments).disassemble_into_single_device_arrays()
        arrays = [result[0] for result in results]
        for array in arrays:
            wait_for(array.is_ready)
            array.block_until_ready()
        return arrays


def compiled(program: bytes) -> Any:
    """XLA's executable of a program in StableHLO, for one device of this process.

    Raises:
        Exception: XLA does not compile it (whatever jaxlib raises).
    """
    import numpy
    from jax._src.lib import xla_client

    device = _device()
    options = xla_client.CompileOptions()
    # Left to itself XLA takes the first device of all, which may be another process's.
    options.device_assignment = xla_client.DeviceAssignment.create(numpy.array([[device.id]], "int32"))
    return device.client.compile_and_load(program, xla_client.DeviceList((device,)), options)


def to_device(arrays: Sequence[Any]) -> list[Any]:
    """NumPy arrays as jax arrays of their own, with the types they have."""
    import jax

    device = _device()
    # Whatever the user's settings are: f64 stays f64, and nothing is traced where a compile runs inside a trace.
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return jax.device_put(list(arrays), device, may_alias=False)


def _device() -> Any:
    """A device of this process; with jax.distributed there are others' as well."""
    import jax

    return jax.local_devices(backend="cpu")[0]


def start() -> None:
    """See to it that JAX's CPU client exists, and that modules which were not traced here find LAPACK."""
    import jax
    from jax._src.lib import lapack

    jax.devices("cpu")
    # JAX itself does so when it lowers the first of these calls; until then they end the process.
    lapack._lapack.initialize()


def _placeholder_program(name: str, parameters: Sequence[Shape], results: Sequence[Shape]) -> str:
    """StableHLO of a program that takes these and returns zeros."""
    taken = ", ".join(f"%arg{number}: {_type(shape)}" for number, shape in enumerate(parameters))
    types = ", ".join(_type(shape) for shape in results)
    lines = [f"%r{n} = stablehlo.constant dense<{_zero(s)}> : {_type(s)}" for n, s in enumerate(results)]
    returned = ", ".join(f"%r{number}" for number in range(len(results)))
    return "\n".join(
        [
            f"module @{name} {{",
            f"func.func public @main({taken}) -> ({types}) {{",
            *lines,
            f"return {returned} : {types}",
            "} }",
        ]
    )


def _type(shape: Shape) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape.dimensions)}{_STABLEHLO[shape.element_type]}>"


def _zero(shape: Shape) -> str:
    if shape.element_type == "pred":
        return "false"
    if shape.element_type.startswith("c"):
        return "(0.0,0.0)"
    return "0" if shape.element_type[0] in "su" else "0.0"
