"""Options of `pytest bench/`."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tag", default="", help="only cases with this tag: ci, primary")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tag = config.getoption("--tag")
    if tag:
        items[:] = [item for item in items if tag in item.callspec.params["case"].tags]  # pyright: ignore[reportAttributeAccessIssue]
