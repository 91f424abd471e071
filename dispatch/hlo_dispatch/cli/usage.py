"""What a person typed wrong, in one line instead of typer's box."""

from __future__ import annotations

from typing import Any

import typer

# Typer has click inside, under no public name; older ones import it. Their public exception has the ones wanted here
# for its parents.
ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
_NO_ARGUMENTS = "NoArgsIsHelpError"


def sentence(error: Any) -> str:
    """What is wrong and who says more; empty where nothing is, but the help was asked for by typing nothing else."""
    if type(error).__name__ == _NO_ARGUMENTS:
        return ""
    message = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context is not None else message
