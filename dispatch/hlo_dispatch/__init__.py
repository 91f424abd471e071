"""hlo-dispatch: vendor kernels under XLA:CPU, without changing the program."""
