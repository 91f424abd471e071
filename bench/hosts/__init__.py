"""Models on the PJRT plugin: the runtime alone, the plugin, and JAX's own compiler with the pass.

    python -m bench.hosts.resnet50 --runtime /path/of/plugin.so

The first two are compared in one process, in turn; the third has one of its own.
"""
