"""Command line: `hlo-dispatch`, one module a command or a view.

`main.py` is the entry point: `run_program.py` runs a Python program, and `application.py` has all other commands.
"""
