"""Elementwise matches: regions around functions that XLA:CPU computes number by number, as one call of vector math.

`region.py` grows a region, `program.py` writes it as the kernel's program, `finder.py` yields the matches.
"""
