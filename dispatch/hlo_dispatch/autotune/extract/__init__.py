"""A region of a program as a module of its own."""
