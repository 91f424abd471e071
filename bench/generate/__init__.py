"""Text generation by a small language model, in JAX and by its peers: `hlo-dispatch bench generate`.

`plan.py` says what is measured; `weights.py` has the model's random numbers, the same for every library. `decoder.py`
is the model in JAX, in the three forms in which people write its loop over layers, and `in_jax.py` runs one form in one
way; `in_llama_cpp.py` and `in_openvino.py` write the model for a peer and run it (`peers.py` lists them). All are
sessions (`session.py`), which `process.py` measures on request, in a process of its own, since memory is a process's;
`campaign.py` has the contenders of one precision take turns; `view.py` prints the tables.
"""
