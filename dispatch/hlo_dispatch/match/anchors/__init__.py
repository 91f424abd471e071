"""Instructions that become kernel calls, described in the kernels' terms."""
