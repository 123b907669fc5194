"""Build the tests' ``DATABASES`` from one URL."""

from __future__ import annotations

from typing import Any

import environ

UNSET = "mysql://root@localhost/mqueue"
"""A placeholder for processes that never connect, such as type checking or collecting."""


def databases(url: str) -> dict[str, dict[str, Any]]:
    """Return ``default``, and ``other`` on the same server (for ``using=``)."""
    found = environ.Env.db_url_config(url)
    found["OPTIONS"] = {
        "charset": "utf8mb4",
        "isolation_level": "read committed",
        **found.get("OPTIONS", {}),
    }
    name = found["NAME"] or "mqueue"
    return {
        alias: {
            **found,
            "NAME": database,
            "OPTIONS": dict(found["OPTIONS"]),
            "TEST": {"NAME": f"test_{database}"},
        }
        for alias, database in (("default", name), ("other", f"{name}_other"))
    }


def connection_parameters(url: str, *, database: bool = True) -> dict[str, object]:
    """Return the arguments of ``MySQLdb.connect``. Without ``database``, the connection selects no database."""
    from django.db.backends.mysql.base import DatabaseWrapper

    complete = {
        "TIME_ZONE": None,
        "HOST": "",
        "PORT": "",
        "USER": "",
        "PASSWORD": "",
        **databases(url)["default"],
    }
    found: dict[str, object] = DatabaseWrapper(complete).get_connection_params()
    return {key: value for key, value in found.items() if database or key not in ("database", "db")}
