"""Module substitution: compiles and runs an optimized module as it is, by substituting it for a placeholder program.

JAX compiles no optimized HLO, but XLA's hook takes whatever module a callback returns. So a placeholder program of
the same signature is compiled, and the hook substitutes the module. Every callback in JAX's hook passes its module to
`substitution()` first: placeholders are known by their names, on any thread, so a measurement inside a user's compile
never runs our own pass. The only file of `autotune/` that imports jax.
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
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import Shape, shape_of
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

_PLACEHOLDER = "hlo_dispatch_stand_in_"
_HOOK_NAME = "hlo_dispatch_stand_ins"
# A module's name is its first field.
_NAME_IS_WITHIN = 256
_numbers = itertools.count()
_modules: dict[bytes, bytes] = {}
"""Placeholder's token → the module that is compiled in its place."""
_seen: set[bytes] = set()
"""Tokens of substituted placeholders."""
_lock = ForkSafeLock(threading.RLock)
_is_substitution_relayed = False
"""Whether another callback in JAX's hook calls `substitution()`."""
_is_hook_installed = False
"""Whether this module's callback is in JAX's hook."""
_substitutions: collections.Counter[bytes] = collections.Counter()
"""Number of active `substituting_module` blocks for each placeholder token."""
_captures: dict[bytes, list[Module]] = {}
"""Token of a program whose optimized module is captured → list for the module."""

_STABLEHLO = {
    "pred": "i1", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u8": "ui8", "u16": "ui16", "u32": "ui32",
    "u64": "ui64", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "c64": "complex<f32>",
    "c128": "complex<f64>", "s4": "i4", "u4": "ui4",
}  # fmt: skip


def substitution(serialized: bytes) -> tuple[bool, bytes | None]:
    """(whether the module is a placeholder, the module that XLA compiles instead)."""
    start = serialized.find(_PLACEHOLDER.encode(), 0, _NAME_IS_WITHIN)
    end = serialized.find(b"_end", start) if start >= 0 else -1
    awaited = _captures.get(serialized[start:end]) if end >= 0 else None
    if awaited is not None:
        # Other callbacks in the hook get the result of the first one.
        if awaited:
            return True, None
        awaited.append(Module.from_bytes(serialized))
        return True, stopping_before_codegen(awaited[0]).to_bytes()
    # A user's function may have such a name, too.
    module = _modules.get(serialized[start:end]) if end >= 0 else None
    if module is None:
        return False, None
    _seen.add(serialized[start:end])
    return True, module


def relay() -> None:
    """Note that another callback in JAX's hook calls `substitution()` from now on."""
    global _is_substitution_relayed
    _is_substitution_relayed = True


def install_substitution_hook() -> None:
    """Register the substitution callback in JAX's hook, once and for the rest of the process.

    XLA's list of callbacks is not protected from threads that compile while it changes, so it changes only once.
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
    except Exception:  # it gets all modules of the process; a placeholder that remains does not compile
        return None


def placeholder_name(what: str) -> str:
    """Name of a placeholder function; `what`: letters and digits that identify it."""
    return f"{_PLACEHOLDER}{what}_end"


def is_placeholder(module: str) -> bool:
    """Whether this is the name of a placeholder's module."""
    return _PLACEHOLDER in module


@contextlib.contextmanager
def substituting_module(name: str, module: bytes) -> Generator[None]:
    """Substitute a module, serialized by `named`, for the placeholder of this name inside the block."""
    token = _token(name)
    with _lock:
        _substitutions[token] += 1
        _modules[token] = module
    try:
        install_substitution_hook()
        yield
    finally:
        with _lock:
            _substitutions[token] -= 1
            if not _substitutions[token]:
                del _substitutions[token], _modules[token]
                _seen.discard(token)


def named(module: Module, name: str) -> bytes:
    """The module serialized under its placeholder's name, by which other callbacks in the hook recognize it, too."""
    renamed = module.copy()
    renamed.proto.name = name
    return renamed.to_bytes()


@contextlib.contextmanager
def shown(name: str) -> Generator[list[Module]]:
    """Capture the optimized modules that JAX compiles under a `placeholder_name` inside the block; yields their list.

    Compilation stops with an error before code generation, the slowest part; the error ends the block.
    """
    modules: list[Module] = []
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
    """A compiled module; thread-safe."""

    def __init__(self, module: Module) -> None:
        """Compile a module whose entry takes row-major arrays and returns one or a tuple.

        Raises:
            Exception: XLA does not compile it (whatever jaxlib raises), or no hook is in place.
        """
        # JAX's own compilation ends in this call; JAX's caches would mistake the placeholder for a program.
        module = _with_array_result(module)
        signature = module.entry.program_shape
        results = signature.result.tuple_shapes or (signature.result,)
        token = f"{_PLACEHOLDER}{os.getpid()}_{next(_numbers)}".encode()
        name = f"{token.decode()}_end"
        text = _placeholder_program(
            name,
            [shape_of(shape) for shape in signature.parameters],
            [shape_of(shape) for shape in results],
        )
        _modules[token] = named(module, name)
        try:
            # Inside of JAX's hook, where its list must not change, another callback does it.
            if not _is_substitution_relayed:
                install_substitution_hook()
            self._loaded = compiled(text.encode())
            if token not in _seen:
                raise RuntimeError("JAX's hook did not show the placeholder: its callbacks were removed")
        finally:
            del _modules[token]
            _seen.discard(token)

    def serialize(self) -> bytes:
        """Serialize the executable, for the same version of XLA on a machine like this one."""
        return self._loaded.serialize()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on jax arrays; returns when the results are ready."""
        results = self._loaded.execute_sharded(arguments).disassemble_into_single_device_arrays()
        arrays = [result[0] for result in results]
        for array in arrays:
            wait_for(array.is_ready)
            array.block_until_ready()
        return arrays


def _with_array_result(module: Module) -> Module:
    """The module, with an array as its result in place of a tuple of one, which no program of JAX returns."""
    if len(module.entry.program_shape.result.tuple_shapes) != 1:
        return module
    found = module.copy()
    editor = Editor(found, found.entry)
    shape = shape_of(found.entry.program_shape.result.tuple_shapes[0])
    editor.root_id = editor.last().get_tuple_element(editor.root_id, 0, shape, "only_result").id
    commit(found, [editor])
    for signature in (found.entry.program_shape, found.proto.host_program_shape):
        signature.result.CopyFrom(shape.to_proto())
    for alias in found.proto.input_output_alias.entries[:]:
        del alias.output_shape_index[:]
    return found


def compiled(program: bytes) -> Any:
    """XLA's executable of a program in StableHLO, for one device of this process.

    Raises:
        Exception: XLA does not compile it (whatever jaxlib raises).
    """
    import numpy
    from jax._src.lib import xla_client

    device = _device()
    options = xla_client.CompileOptions()
    # By default XLA takes the first device of all, which may be another process's.
    options.device_assignment = xla_client.DeviceAssignment.create(numpy.array([[device.id]], "int32"))
    return device.client.compile_and_load(program, xla_client.DeviceList((device,)), options)


def to_device(arrays: Sequence[Any]) -> list[Any]:
    """Copy NumPy arrays to jax arrays of the same types."""
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
    """Initialize JAX's CPU client, and LAPACK for modules that were not traced in this process."""
    import jax
    from jax._src.lib import lapack

    jax.devices("cpu")
    # JAX does so when it lowers the first LAPACK call; before that such a call aborts the process.
    lapack._lapack.initialize()


def _placeholder_program(name: str, parameters: Sequence[Shape], results: Sequence[Shape]) -> str:
    """StableHLO of a placeholder program of this signature, which returns zeros."""
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
