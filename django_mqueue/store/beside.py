"""A second connection for a moment: for what the caller's transaction is not to lock, or its snapshot does not show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from . import session
from .latest import WITHOUT_SNAPSHOTS

_numbers = itertools.count(1)


@contextmanager
def committed_now(using: str) -> Iterator[str]:
    """An alias whose reads, without locks, go by what is committed at the time of each.

    ``using`` itself, unless the caller's transaction reads the same again and again; then nothing of what that has
    written is seen. Opened by the first read.
    """
    if not keeps_snapshot(using):
        yield using
        return
    with second_connection(using) as alias:
        yield alias


def keeps_snapshot(using: str) -> bool:
    """Return whether a transaction is open that reads the same again and again: it also locks gaps between rows."""
    level = getattr(connections[using], "isolation_level", None)
    return session.in_transaction(using) and level not in WITHOUT_SNAPSHOTS


@contextmanager
def second_connection(using: str) -> Iterator[str]:
    """An alias of the same database whose statements are not part of the caller's transaction. Opened by the first."""
    alias = f"django_mqueue.beside.{next(_numbers)}"
    wrapper = connections[using].copy(alias)
    wrapper.settings_dict["AUTOCOMMIT"] = True
    connections[alias] = wrapper
    try:
        yield alias
    finally:
        wrapper.close()
        del connections[alias]
