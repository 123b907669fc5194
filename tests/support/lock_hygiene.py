"""Check that each statement of ``django_mqueue/store`` that locks rows names the index by which it finds them.

Without a named index, the server may choose another index by its statistics. The statement then locks extra rows, or
waits for them. This module checks the statements that the tests' process sends.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

import django_mqueue

LOCKS = re.compile(r"FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE|^UPDATE queue_|^DELETE (\w+ )?FROM")
NAMED = re.compile(r"FORCE INDEX|ORDER BY consumer_group, topic")
"""A DELETE with a LIMIT names its index by an ``ORDER BY`` of the primary key."""

DJANGO = str(Path(django.__file__).parent)
PACKAGE = str(Path(django_mqueue.__file__).parent / "store")
WRAPPER = str(Path(PACKAGE) / "connection" / "autocommit.py")
"""Statements of handlers pass through it, too."""

_looked_at: set[str] = set()
_found: list[str] = []


def watch() -> None:
    """Check each statement of each connection that this process opens from now on."""
    connection_created.connect(_watch, dispatch_uid="lock hygiene")


def looked_at() -> frozenset[str]:
    """Return the locking statements that were checked so far."""
    return frozenset(_looked_at)


def violations() -> list[str]:
    """Return the statements without a named index since the last call."""
    found = list(_found)
    _found.clear()
    return found


def _watch(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    if _look not in connection.execute_wrappers:
        connection.execute_wrappers.append(_look)


def _look(execute: Callable[..., Any], sql: str | bytes, params: Any, many: bool, context: Any) -> Any:
    if isinstance(sql, str) and sql not in _looked_at and LOCKS.search(sql) and _is_ours():
        _looked_at.add(sql)
        if not NAMED.search(sql):
            _found.append(sql)
    return execute(sql, params, many, context)


def _is_ours() -> bool:
    """Return True if the package's store sends this statement. Tests that prepare rows do not count."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith((DJANGO, WRAPPER, __file__)):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(PACKAGE)
