"""Recurrent layers against their peers: `python -m bench.recurrent`.

`layers.py` is an LSTM and a GRU as scans, in the spellings that people write; `process.py` times them in JAX, in
PyTorch or in OpenVINO, a process each; `__main__.py` has the processes take turns and prints the tables.
"""
