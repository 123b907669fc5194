"""Fixtures that several folders of tests use, and a function that makes fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from tests.support.processes import FAST


@pytest.fixture
def fast() -> Iterator[None]:
    """Apply the settings of the tests' worker processes: short intervals."""
    with override_settings(MQUEUE=FAST):
        yield


def with_settings(**settings: Any) -> Any:
    """Return a fixture for a module, or for a ``conftest.py``: assigned to a name, it applies to each test there."""

    @pytest.fixture(autouse=True)
    def applied() -> Iterator[None]:
        with override_settings(**settings):
            yield

    return applied


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """Use REPEATABLE READ in all connections of this process.

    On MariaDB, enable snapshot isolation, which newer versions enable by default.
    """
    options = connection.settings_dict["OPTIONS"]
    before = dict(options)
    options["isolation_level"] = "repeatable read"
    if connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        options["init_command"] = "SET SESSION innodb_snapshot_isolation = ON"
    connection.close()
    connection.ensure_connection()
    with override_settings(MQUEUE={**FAST, "LEASE_RENEWAL_INTERVAL": 0.1}):
        yield
    options.clear()
    options.update(before)
    connection.close()
