"""Library routines: JAX's own LAPACK and FFT calls, sorts, and products of triangular factors, as matches."""
