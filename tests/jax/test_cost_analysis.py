"""XLA counts no arithmetic in a custom-call and lets none say its own: the page's way to the number gives stock's."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch

PAGE = (Path(__file__).parents[2] / "dispatch" / "README.md").read_text()
X, W = np.ones((64, 128), "float32"), np.ones((128, 256), "float32")


def test_the_pages_way_to_flops() -> None:
    (snippet,) = re.findall(r"`(with hlo_dispatch\.enabled\(policy=\"never\"\): [^`]*cost_analysis[^`]*)`", PAGE)
    f, x = jax.jit(lambda x: jnp.tanh(x @ W) + 1), X
    stock = f.lower(x).compile().cost_analysis()["flops"]
    assert stock > 2 * 64 * 128 * 256
    with hlo_dispatch.enabled(policy="always"):
        compiled = f.lower(x).compile()
        assert "hlo_dispatch.onednn.matmul" in compiled.as_text()
        assert compiled.cost_analysis()["flops"] == -1, "XLA counts it now: the page's limits say that it does not"
        names = {"hlo_dispatch": hlo_dispatch, "f": f, "x": x}
        exec(" ".join(snippet.split()), names)
        assert names["flops"] == stock
        assert f.lower(x).cost_analysis()["flops"] == stock, "counted before anything is compiled"
