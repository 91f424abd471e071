"""A program of Keras as users write it: a network of `keras.applications` predicts images, once for each line read.

    predict_program.py APPLICATION SIZE IMAGES BATCH [frozen]

With `frozen` it is the same program with the model frozen by `hlo_dispatch.freeze`, batch by batch. Prints the seconds
of each prediction, and at last the file with the latest results.
"""

# pyright: basic, reportMissingImports=false
# Keras has no complete type hints.
from __future__ import annotations

import os
import sys
import tempfile
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np


def main() -> None:
    """Predict until there are no more lines."""
    application, size, count, batch, *way = sys.argv[1:]
    generator = np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    shape = (int(size), int(size), 3)
    model = getattr(keras.applications, application)(weights=None, input_shape=shape, classifier_activation=None)
    images = generator.uniform(-1, 1, (int(count), *shape)).astype("float32")
    if way:
        import hlo_dispatch

        hlo_dispatch.install()
        frozen = hlo_dispatch.freeze(model)
    results = None
    for _ in sys.stdin:
        begin = time.perf_counter()
        if way:
            parts = [images[first : first + int(batch)] for first in range(0, len(images), int(batch))]
            results = np.concatenate([np.asarray(result) for result in map(frozen, parts)])
        else:
            results = model.predict(images, batch_size=int(batch), verbose=0)
        print(time.perf_counter() - begin, flush=True)
    file = os.path.join(tempfile.mkdtemp(), "results.npy")
    np.save(file, np.asarray(results))
    print(file)


if __name__ == "__main__":
    main()
