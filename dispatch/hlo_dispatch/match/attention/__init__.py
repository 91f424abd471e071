"""Attention: two products with a softmax between them, found as XLA leaves it."""
