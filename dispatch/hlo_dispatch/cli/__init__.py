"""The command line: one file a command or a view."""
