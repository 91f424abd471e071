"""Models in hosts that speak PJRT: a runtime alone, the plugin on it, the example in C++, and JAX's own compiler.

    python -m bench.hosts.models resnet50 --runtime /path/of/plugin.so

`client.py` runs in a process of its own for each runtime, with our client and, where it is installed, with pypjrt.
`in_torch_xla.py` is run in an environment of its own:

    python bench/hosts/in_torch_xla.py --plugin /path/of/libhlo_dispatch_pjrt.so
"""
