"""Text generation by a small language model: `hlo-dispatch bench generate`.

`decoder.py` is the model, in the three forms in which people write its loop over layers; `process.py` runs one form in
one way and measures on request, in a process of its own, since memory is a process's; `campaign.py` has all forms of a
way take turns; `view.py` prints the tables.
"""
