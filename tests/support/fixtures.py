"""Fixtures that several folders of tests use, and a function that makes fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from tests.support.processes import FAST


def with_settings(*, autouse: bool = True, **settings: Any) -> Any:
    """Return a fixture for a module, or for a ``conftest.py``: assigned to a name, it applies to each test there.

    Without ``autouse``, it applies to the tests that name it.
    """

    @pytest.fixture(autouse=autouse)
    def applied() -> Iterator[None]:
        with override_settings(**settings):
            yield

    return applied


fast = with_settings(autouse=False, MQUEUE=FAST)
"""The settings of the tests' worker processes: short intervals."""


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """Use REPEATABLE READ in all connections of this process, and short intervals.

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
