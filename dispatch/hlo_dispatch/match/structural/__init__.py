"""Structural matching: every place in a flat graph where an expression of the pattern table holds."""
