"""Extracted modules compiled and run: inputs, executables, and the watch over both."""
