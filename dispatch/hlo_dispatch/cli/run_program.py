"""`hlo-dispatch run`: a Python program in this process, as Python runs it, with the pass and `hlo_dispatch.jit`.

Imports nothing but the standard library and a few small modules: a program starts as soon as under Python itself.
"""

from __future__ import annotations

import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from hlo_dispatch.automatic_freezing.mode import freeze_mode
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.jax_plugin import entry_point, jit_replacement

_run_module_as_main: Callable[..., Any] = vars(runpy)["_run_module_as_main"]
"""What Python's own main program calls."""
USAGE = """\
Usage: hlo-dispatch run PROGRAM.py [ARGS]...
       hlo-dispatch run -m MODULE [ARGS]...
       hlo-dispatch run - [ARGS]...

Run a Python program as Python would, with the pass installed and hlo_dispatch.jit in jax.jit's place.

HLO_DISPATCH_POLICY, HLO_DISPATCH_FREEZE and the other variables hold as usual; HLO_DISPATCH=0 leaves the pass out, and
HLO_DISPATCH_FREEZE=never leaves jax.jit as it is. Processes that the program starts are run as they are.
"""


def run(arguments: Sequence[str]) -> None:
    """Run the program that the arguments name; returns when it ends, or raises what it raises.

    Exits with status 2 where there is no such program.
    """
    words = list(arguments)
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return
    is_module = words[:1] == ["-m"]
    if words[:1] in (["-m"], ["--"]):
        words = words[1:]
    elif words and words[0].startswith("-") and words[0] != "-":
        _fail(f"run takes no option {words[0]}; see hlo-dispatch run --help")
    if not words:
        _fail("run takes a program, or -m and a module; see hlo-dispatch run --help")
    try:
        freeze_mode()
        if os.environ.get("HLO_DISPATCH_FREEZE_MEMORY"):
            from hlo_dispatch.automatic_freezing.memory_budget import configured_bytes

            configured_bytes()
        entry_point.request()
    except HloDispatchError as error:
        _fail(str(error))
    jit_replacement.replace_jit()
    program = words[0]
    start = _module if is_module else _standard_input if program == "-" else _file
    sys.argv = [program, *words[1:]]
    start(program)


def _fail(message: str) -> NoReturn:
    print("hlo-dispatch:", message, file=sys.stderr)
    sys.exit(2)


def _module(name: str) -> None:
    """As `python -m name`."""
    sys.argv[0] = "-m"
    _set_first_path(os.getcwd())
    _new_main()
    _call(lambda: _run_module_as_main(name))


def _standard_input(_: str) -> None:
    """As `python -`."""
    content = sys.stdin.read()
    _set_first_path("")
    module = _new_main()
    module.__file__ = "<stdin>"
    _call(lambda: exec(compile(content, "<stdin>", "exec", dont_inherit=True), module.__dict__))


def _file(path: str) -> None:
    """As `python path`: a file of source or byte code, or a folder or archive that has a `__main__.py`."""
    path = os.path.join(os.getcwd(), path)  # neither normalized nor resolved, as Python has it in __file__
    if pkgutil.get_importer(path) is not None:
        # Its `__main__` is found there, whatever Python was told.
        sys.path[: not sys.flags.safe_path] = [path]
        _new_main()
        _call(lambda: _run_module_as_main("__main__", False))
        return
    try:
        with io.open_code(path) as file:
            content = file.read()
    except OSError as error:
        _fail(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}")
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    module = _new_main()
    module.__file__ = path
    module.__dict__["__cached__"] = None

    def execute() -> None:
        code = _byte_code(path) or compile(content, path, "exec", dont_inherit=True)
        loader = SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader
        module.__loader__ = loader("__main__", path)
        exec(code, module.__dict__)

    _call(execute)


def _byte_code(path: str) -> CodeType | None:
    if not path.endswith(".pyc"):
        return None
    with io.open_code(path) as file:
        return vars(pkgutil)["read_code"](file)


def _new_main() -> ModuleType:
    """A fresh `__main__`, which objects that the program defines are pickled by."""
    module = ModuleType("__main__")
    vars(module).update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = module
    return module


def _set_first_path(folder: str) -> None:
    """Put the program's folder where the command's own is, unless Python was told to put none there."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _call(program: Callable[[], Any]) -> None:
    """Call the program; an error's traceback is shown without this module's frames."""
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        _hide_our_frames(error)
        raise


def _hide_our_frames(error: BaseException) -> None:
    """Have Python's handler of errors, or the program's own, show a traceback without this module's frames."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    hook = sys.excepthook

    def without_our_frames(kind: type[BaseException], value: BaseException, found: TracebackType | None) -> Any:
        if value is error:
            value, found = value.with_traceback(shown), shown
        return hook(kind, value, found)

    sys.excepthook = without_our_frames
