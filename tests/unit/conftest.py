from __future__ import annotations

from pathlib import Path

import pytest

SERVERS = {"spark", "broker", "cluster", "postgresql", "mariadb"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse unit tests that start a JVM or a server: this tier is to be fast."""
    here = Path(__file__).parent
    for item in items:
        needs = SERVERS & {*getattr(item, "fixturenames", ())}
        if needs and here in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} needs {needs}: move it to tests/parts")
