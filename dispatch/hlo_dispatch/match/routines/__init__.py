"""Library routines: JAX's own LAPACK and FFT calls, and products of triangular factors, as matches."""
