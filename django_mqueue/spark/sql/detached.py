"""A connection without Django's settings, for Spark's processes, which may have none.

While it is needed, it has an entry in one thread's ``django.db.connections``, under a new alias. So the queue's code
uses it like any other connection.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.mysql.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ...store.connection import encryption

_numbers = itertools.count(1)


class _Cursor(CursorWrapper):
    """A cursor that does not warn that Django's apps are not ready. These processes may not load them."""

    def execute(self, sql: Any, params: Any = None) -> Any:
        self.db.validate_no_broken_transaction()
        with self.db.wrap_database_errors:
            return self.cursor.execute(sql, params)


class _Wrapper(DatabaseWrapper):
    """A connection that reads nothing from Django's settings."""

    @property
    def queries_logged(self) -> bool:
        return False

    def get_connection_params(self) -> dict[str, Any]:
        """Return the driver's arguments, with the encryption that the settings require.

        Raises ``NotSupportedError`` if the client library cannot encrypt like this.
        """
        return encryption.enforced(super().get_connection_params())

    def make_cursor(self, cursor: Any) -> CursorWrapper:
        return _Cursor(cursor, self)


@contextmanager
def connection(settings: Mapping[str, Any]) -> Iterator[str]:
    """Open a connection with an entry of ``DATABASES``, and yield its alias. Raises the driver's error.

    Its SQL mode is strict, whatever the server's is. Otherwise an INSERT of several messages for a group that is not
    registered would store '' for NULL, and all groups would get them.
    """
    alias = f"django_mqueue.detached.{next(_numbers)}"
    wrapper = _Wrapper(
        {
            "NAME": "", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "TEST": {}, **settings,
            "ENGINE": "django.db.backends.mysql",
            "OPTIONS": {
                "charset": "utf8mb4", **settings.get("OPTIONS", {}), "isolation_level": "read committed",
                "sql_mode": "STRICT_TRANS_TABLES",
            },
            "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False, "AUTOCOMMIT": True, "ATOMIC_REQUESTS": False,
            "TIME_ZONE": None,
        },
        alias,
    )  # fmt: skip
    connections[alias] = wrapper
    try:
        wrapper.ensure_connection()
        yield alias
    finally:
        wrapper.close()
        del connections[alias]
