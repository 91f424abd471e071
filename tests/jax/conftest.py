"""Fixtures of whole-program tests: whether the library supports the test's element type."""

from __future__ import annotations

import pytest

from processor import skip_without


@pytest.fixture(autouse=True)
def _arithmetic(request: pytest.FixtureRequest) -> None:
    """A test of bfloat16 is for processors on which oneDNN computes in it."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and str(callspec.params.get("dtype")) == "bfloat16":
        skip_without("bf16")
