"""Command line: `hlo-dispatch`, one module a command or a view."""
