"""Programs to measure, and their measurements."""

from __future__ import annotations

import jax
import numpy as np

import hlo_dispatch
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.store import Entry, Store
from hlo_dispatch.driver import measured_pipeline

RANDOM = np.random.default_rng(7)
X, W, B = (RANDOM.standard_normal(shape, dtype="float32") / 4 for shape in ((64, 256), (256, 128), (128,)))
IMAGE, FILTER = (RANDOM.standard_normal(s, dtype="float32") / 4 for s in ((1, 28, 28, 32), (3, 3, 1, 32)))


def dense(x, w, b):
    return jax.nn.gelu(x @ w + b)


def depthwise(x, w):
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(
        jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dimensions, feature_group_count=32)
    )


def compiled(function, *arguments, policy: str = "measure"):
    with hlo_dispatch.enabled(policy=policy):
        return jax.jit(lambda *a: function(*a)).lower(*arguments).compile()


def calls(executable) -> int:
    return executable.as_text().count('custom_call_target="hlo_dispatch.')


def regions_in(store: Store) -> list[Entry]:
    """What is stored, without whole programs."""
    return [entry for entry in store.entries() if entry.measured.kernel != whole_program_trial.ALL_KERNELS]


def forget(store: Store) -> None:
    """Be a process that has read nothing yet."""
    measured_pipeline._knowledge.clear()
    measured_pipeline._given_up.clear()
