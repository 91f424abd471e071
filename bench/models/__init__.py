"""Whole models against their peers, each peer in a process of its own.

`catalogue.py` is the list; `in_jax.py` and `in_torch.py` build the same models; `peers.py` compiles them each in its
way; `process.py` is what a peer's process does, `peer_process.py` its parent's end of it; `campaign.py` has all of them
take turns; `diffusion.py` adds the parts of Stable Diffusion up to images.
"""
