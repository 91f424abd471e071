"""Runs the command `hlo-dispatch`, or Python code, in children of a process that has imported all and started nothing.

Importing takes ten times as long as most of what the command is asked for here. Requests are JSON lines on a socket
(its number is the argument), answers the exit status; tests/warm.py is the other end.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
import types
import warnings
from typing import Any


def preload() -> None:
    """What the subcommands import when they are run; none of it starts a thread of XLA's or of a library's."""
    import jax  # noqa: F401
    import jaxlib._hlo  # noqa: F401

    import hlo_dispatch.api
    import hlo_dispatch.cli.application
    import hlo_dispatch.cli.doctor
    import hlo_dispatch.jax_plugin.hook
    import hlo_dispatch.jax_plugin.tuning  # noqa: F401


def run(request: dict[str, Any]) -> int:
    """In the child: be the command, or a Python that was given code; its exit status."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, (name, flags) in enumerate((("input", os.O_RDONLY), ("output", os.O_WRONLY), ("errors", os.O_WRONLY))):
        opened = os.open(request[name], flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["-c" if request["code"] else "hlo-dispatch", *request["arguments"]]
    status = 0
    try:
        if request["code"]:
            sys.path.insert(0, "")
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(request["code"], "<string>", "exec"), vars(module))
        else:
            from hlo_dispatch.cli.main import main

            main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()  # as an interpreter that ends: other threads first
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    return status


def serve(connection: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that this process may have threads; NumPy's know of forks
                child = os.fork()
            if not child:
                status = 70
                try:
                    status = run(json.loads(line))
                finally:
                    os._exit(status)
            _, ended = os.waitpid(child, 0)
            lines.write(json.dumps(os.waitstatus_to_exitcode(ended)) + "\n")
            lines.flush()


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
