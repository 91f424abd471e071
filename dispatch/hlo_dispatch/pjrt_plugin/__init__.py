"""Python side of the PJRT plugin (kernels/pjrt): the rewriter, a process beside each host of the plugin.

The plugin starts `__main__.py` when a host compiles a program with something to match, and ends it with the host.
`channel.py` holds the messages between the two; `rewriter.py` rewrites a module by the pipeline, the policy and the
measurement store of every other way in. Before a rewritten module is handed over, `verification.py` compares it with
the stock module on random inputs, on the plugin's runtime: in a third process (`verifier.py`), since a failed check
inside XLA ends its process. `c_client.py` is that one's client of PJRT's C interface.
"""
