"""Placeholder executables: modules as jitted functions, by module substitution in JAX's hook.

JAX compiles a placeholder of the same signature, and the hook substitutes the module. The placeholder is jitted, as
any function is: calls take jit's fast path, and jit handles devices, conversions and the compilation cache. It calls a
target that does not exist: without substitution it does not compile. Its name contains a digest of everything that the
compilation depends on, so two placeholders of one name are one program, in any process.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from hlo_dispatch.autotune.run.executable import named, placeholder_name, substituting_module
from hlo_dispatch.ir.module import Module
from hlo_dispatch.jax_plugin.executable_loading import compiled_from, serialized_executable_of
from hlo_dispatch.jax_plugin.forgotten_donation import with_inputs_kept
from hlo_dispatch.jax_plugin.hook import installed_tables
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.process.retained_memory import return_free_memory
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.vendor.registration import register_kernels

_TARGET = "hlo_dispatch."
_MOST_RUNS = 4
_UNKNOWN_OPTION = "No such compile option"


class NotCompiledForArguments(Exception):
    """A placeholder was called with arguments, or on a device, for which it was not compiled."""


class _CompilingThread(threading.local):
    compiles: str | None = None
    """Name of the placeholder that this thread compiles."""


_thread = _CompilingThread()


class PlaceholderExecutable:
    """A module as a jitted function of (arrays, *args, **kwargs)."""

    def __init__(
        self,
        module: Module,
        results: Sequence[Any],
        structure: Any,
        options: dict[str, Any] | None = None,
        donated: Sequence[int] = (),
        serialized: bytes | None = None,
    ) -> None:
        """
        Args:
            module: its entry takes the leaves of (arrays, args, kwargs) in this order.
            results: abstract values of its results.
            structure: pytree structure of its results.
            options: compiler options of XLA; omitted where this XLA does not know them.
            donated: numbers of the donated `args`.
            serialized: XLA's executable of the module, which is loaded instead of compiling where that is possible.
        """
        self._donated = tuple(1 + number for number in donated)
        self._options = options
        self._serialized = serialized
        self._compiled_stage: Any = None
        self._results, self._structure = tuple(results), structure
        self.name = placeholder_name(f"frozen_{_digest(module)}")
        self._module = named(with_inputs_kept(module), self.name)
        self._runs: list[Callable[..., Any]] = []
        """Jitted functions, the latest first: one for each device that it was called on."""
        self._latest = self._jitted()

    def _jitted(self) -> Callable[..., Any]:
        """Create a new jitted function: jit disables the fast path of a function whose first call fails."""

        def call(arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
            if _thread.compiles != self.name:
                raise NotCompiledForArguments
            leaves = jax.tree.leaves((arrays, args, kwargs))
            out = _module_p.bind(*leaves, name=self.name, results=self._results)
            return jax.tree.unflatten(self._structure, out)

        call.__name__ = call.__qualname__ = self.name
        return jax.jit(call, keep_unused=True, compiler_options=self._options, donate_argnums=self._donated)

    def run(self, arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the module as it was compiled last.

        Raises:
            NotCompiledForArguments: it was not compiled for these arguments.
        """
        return self._run(self._latest, arrays, args, kwargs)

    def _run(self, run: Callable[..., Any], arrays: Any, args: Any, kwargs: Any) -> Any:
        try:
            return run(arrays, *args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            self._raise_unless_substituted(error)
            raise

    def _raise_unless_substituted(self, error: Exception) -> None:
        # JAX compiles what it has lowered for one device for another one, too, without lowering it again.
        if f"{_TARGET}{self.name}" in str(error):
            raise NotCompiledForArguments from error

    def compile_and_run(self, arrays: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the module, compiling it first where necessary."""
        for run in self._runs:
            with contextlib.suppress(NotCompiledForArguments):
                result = self._run(run, arrays, args, kwargs)
                self._remember(run)
                return result
        with self._compiled(arrays, args, kwargs) as run:
            result = run(arrays, *args, **kwargs)
        self._remember(run)
        return result

    def compile(self, arrays: Any, /, *args: Any, **kwargs: Any) -> None:
        """Compile the module for arguments, arrays or abstract values, where necessary."""
        for run in self._runs:
            with contextlib.suppress(NotCompiledForArguments):
                lowered = run.lower(arrays, *args, **kwargs)
                try:
                    lowered.compile()
                except jax.errors.JaxRuntimeError as error:
                    self._raise_unless_substituted(error)
                    raise
                return
        with self._compiled(arrays, args, kwargs) as run:
            self._remember(run)

    def serialize(self) -> bytes | None:
        """XLA's executable as it was last compiled; None where there is none, or it cannot be serialized."""
        return None if self._compiled_stage is None else serialized_executable_of(self._compiled_stage)

    @contextlib.contextmanager
    def _compiled(self, arrays: Any, args: Any, kwargs: Any) -> Generator[Callable[..., Any]]:
        register_kernels(installed_tables())
        with substituting_module(self.name, self._module), self._compiling():
            run = self._jitted()
            lowered = run.lower(arrays, *args, **kwargs)
            try:
                # The call uses it.
                self._compiled_stage = (
                    lowered.compile() if self._serialized is None else compiled_from(lowered, self._serialized)
                )
            except jax.errors.JaxRuntimeError as error:
                if self._options is None or _UNKNOWN_OPTION not in str(error):
                    raise
                self._options = None  # this XLA no longer knows them
                run = self._jitted()
                self._compiled_stage = run.lower(arrays, *args, **kwargs).compile()
            # Weight preprocessing holds originals and results at once: memory of the compilation must not add to that.
            return_free_memory()
            yield run

    def _remember(self, run: Callable[..., Any]) -> None:
        # JAX's caches may evict compilations: keep the latest functions only.
        self._runs = [run, *(other for other in self._runs if other is not run)][:_MOST_RUNS]
        self._latest = run

    @contextlib.contextmanager
    def _compiling(self) -> Generator[None]:
        before, _thread.compiles = _thread.compiles, self.name
        try:
            yield
        finally:
            _thread.compiles = before


def _digest(module: Module) -> str:
    """Digest of a program, the kind of machine and the versions of libraries."""
    program = module.copy()
    # XLA's module ids and source locations do not change the code.
    program.proto.id = 0
    program.proto.name = ""
    program.proto.ClearField("stack_frame_index")
    for instruction in program.instructions:
        instruction.ClearField("metadata")
    digest = hashlib.sha256(program.proto.SerializeToString(deterministic=True))
    if program.custom_call_targets:
        digest.update(f"{load_tables(installed_tables()).fingerprint} {this_context().fingerprint}".encode())
    return digest.hexdigest()[:40]


def _lowered(ctx: Any, *operands: Any, name: str, results: Any) -> Any:
    # JAX may lower a traced function again, for another device for example.
    if _thread.compiles != name:
        raise NotCompiledForArguments
    return jax.ffi.ffi_lowering(f"{_TARGET}{name}", has_side_effect=False)(ctx, *operands)


def _evaluated(*_: Any, **__: Any) -> Any:
    # jax_debug_nans evaluates a function again op by op, once its result contains a NaN.
    raise FloatingPointError(
        "invalid value (nan) encountered in a frozen function: call the function that was frozen to see where"
    )


_module_p = Primitive("hlo_dispatch_module")
_module_p.multiple_results = True
_module_p.def_abstract_eval(lambda *_, name, results: list(results))
_module_p.def_impl(_evaluated)
mlir.register_lowering(_module_p, _lowered)
