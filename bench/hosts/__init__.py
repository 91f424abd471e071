"""Models in hosts that speak PJRT: a runtime alone, the plugin on it, the example in C++, and JAX's own compiler.

    python -m bench.hosts.models resnet50 mobilenetv2 bert-layer --runtime /path/of/plugin.so

Each runs in a process of its own, and they take turns (`turns.py`): `client.py` has our client and, where it is
installed, pypjrt's.
`jax_tests.py` counts JAX's own tests that pass on a runtime alone and on the plugin:

    python -m bench.hosts.jax_tests /path/of/jax --runtime /path/of/plugin.so --every 40

`in_torch_xla.py` is run in an environment of its own:

    python bench/hosts/in_torch_xla.py --plugin /path/of/libhlo_dispatch_pjrt.so
"""
