"""Fixtures that several folders of tests import in their ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import override_settings

from tests.support.processes import FAST


@pytest.fixture
def fast() -> Iterator[None]:
    """Short leases and quick looks, as worker processes of tests have them."""
    with override_settings(MQUEUE=FAST):
        yield


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """In all of this process's connections; on MariaDB with its snapshot isolation, as newer ones have it."""
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
