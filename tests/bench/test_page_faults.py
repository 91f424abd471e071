"""`bench.page_faults`: times, page faults and memory of each way of a program."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import hlo_dispatch
from hlo_dispatch.bench.page_faults import WAYS, measure
from hlo_dispatch.process.large_pages import FOLDER

pytestmark = pytest.mark.any_python


def layers(x, w):
    for _ in range(4):
        x = jnp.tanh(x @ w)
    return x


def test_each_way_is_measured() -> None:
    hlo_dispatch.uninstall()
    found = measure((layers, (jnp.ones((16384, 256)), jnp.ones((256, 256)) / 256)), WAYS, "always", 0)
    assert list(found) == list(WAYS)
    assert all(
        sample.wall > 0 and sample.processor >= sample.system and sample.resident > 32 for sample in found.values()
    )
    if FOLDER.exists() and "[madvise]" in (FOLDER / "enabled").read_text():
        # A result and a temporary buffer of 16 MB each come in pages of 4 KB without the advice.
        assert found["advised"].faults <= found["unadvised"].faults / 2
