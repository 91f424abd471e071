"""Library calls of JAX's own and products of factors."""
