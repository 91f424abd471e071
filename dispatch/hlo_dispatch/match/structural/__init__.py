"""Patterns that are written as expressions."""
