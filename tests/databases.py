"""The tests' ``DATABASES``, made of one URL."""

from __future__ import annotations

from typing import Any

import environ

UNSET = "mysql://root@localhost/mqueue"
"""Stands in where nothing connects: type checking, collecting."""


def databases(url: str) -> dict[str, dict[str, Any]]:
    """``default``, and ``other`` beside it on the same server (for ``using=``)."""
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
