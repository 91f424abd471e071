"""Preprocessing in several stages, however small the weights are."""

from __future__ import annotations

import pytest

from hlo_dispatch.passes.partition import prologue_stages


def split_small_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prologue_stages, "MIN_STAGED_BYTES", 0)
    monkeypatch.setattr(prologue_stages, "MIN_STAGE_BYTES", 0)
