"""`jax.numpy` as Flax T5 knew it, which calls `clip` with names that jax has dropped since."""

# pyright: basic
from __future__ import annotations

from typing import Any


class OlderNumpy:
    """Everything of `jax.numpy`, with `clip`'s bounds under their former names."""

    def __getattr__(self, name: str) -> Any:
        import jax

        return getattr(jax.numpy, name)

    def clip(self, array: Any, a_min: Any = None, a_max: Any = None) -> Any:
        """`jax.numpy.clip(array, a_min, a_max)`."""
        import jax

        return jax.numpy.clip(array, a_min, a_max)


def flax_t5() -> Any:
    """The module of transformers that has Flax' T5, made to run with today's jax."""
    from transformers.models.t5 import modeling_flax_t5

    module: Any = modeling_flax_t5
    module.jnp = OlderNumpy()
    return module
