"""Usage errors in one line, instead of typer's box."""

from __future__ import annotations

from typing import Any

import typer

# Typer vendors click without a public name; older ones import it. The wanted classes are bases of typer's public
# exception.
ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
_NO_ARGUMENTS = "NoArgsIsHelpError"


def sentence(error: Any) -> str:
    """The error and the help command; empty where the command was called without arguments and printed its help."""
    if type(error).__name__ == _NO_ARGUMENTS:
        return ""
    message = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context is not None else message
