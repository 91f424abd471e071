from __future__ import annotations

import pytest

from hlo_dispatch.pattern import Recogniser, Table, load_tables


@pytest.fixture(scope="session")
def table() -> Table:
    return load_tables()


@pytest.fixture(scope="session")
def recogniser(table: Table) -> Recogniser:
    return Recogniser(table.activations)
