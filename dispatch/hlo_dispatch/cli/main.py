"""Entry point of `hlo-dispatch`: `run` before anything else is imported, and every other command.

Every error of this package ends as one line on standard error and exit status 2, without a traceback.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; the entry point of `hlo-dispatch`."""
    if sys.argv[1:2] == ["run"]:
        # A program starts as soon as under Python itself: no command line interface is loaded.
        from hlo_dispatch.cli.run_program import run

        run(sys.argv[2:])
        return
    from hlo_dispatch.cli.application import run_application

    run_application()
