"""What depends on nothing but frozen values is computed once: a module is cut in two, and the halves are run."""
