"""A network of `keras.applications` with random weights.

Keras would draw each weight with a program that JAX compiles for its shape, which takes longer than the rest of the
building; here the variables never get values, and NumPy draws what the network is called with.
"""

# pyright: basic
# Keras has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def network(application: str, *, size: int, dtype: str = "float32") -> tuple[Callable[..., Any], list[Any], list[Any]]:
    """Return (predict(trainable, frozen, images), trainable, frozen); images are (batch, size, size, 3).

    No softmax at the end: logits show differences that probabilities squash.
    """
    import keras
    import numpy as np

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        with keras.StatelessScope(initialize_variables=False):
            builder = getattr(keras.applications, application)
            model = builder(weights=None, input_shape=(size, size, 3), classifier_activation=None)
    finally:
        keras.config.set_dtype_policy(before)

    def predict(trainable: Any, frozen: Any, images: Any) -> Any:
        return model.stateless_call(trainable, frozen, images, training=False)[0]

    generator = np.random.default_rng(0)

    def values(variables: Any) -> list[Any]:
        return [keras.ops.convert_to_tensor(_draw(variable, generator), variable.dtype) for variable in variables]

    return predict, values(model.trainable_variables), values(model.non_trainable_variables)


def _draw(variable: Any, generator: Any) -> Any:
    """A weight, or a statistic near those of a trained network."""
    import numpy as np

    shape = tuple(variable.shape)
    if variable.name in ("gamma", "moving_variance", "variance"):
        return generator.uniform(0.8, 1.2, shape)
    if len(shape) < 2:
        return generator.normal(0, 0.1, shape)
    inputs = np.prod(shape[:2]) if variable.name == "depthwise_kernel" else np.prod(shape[:-1])
    return generator.standard_normal(shape) / np.sqrt(inputs)
