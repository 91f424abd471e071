"""The pass in JAX's compiler: putting it in, its cache key, its record, what is explained and tuned."""
