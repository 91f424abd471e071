"""Analysis: facts about a module and its flat graphs, computed without changing them. Knows no patterns, no kernels."""
