"""A second database connection for a short time.

Its statements take no locks in the caller's transaction, and see rows that the snapshot of this transaction hides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from . import session

_numbers = itertools.count(1)


@contextmanager
def outside_snapshot(using: str) -> Iterator[str]:
    """Yield an alias whose reads without locks see all that is committed at the time of each read.

    The alias is ``using``, unless the caller's transaction reads from a snapshot. Then it is a second connection,
    which does not see what the caller's transaction has written. The first read opens it.
    """
    if not keeps_snapshot(using):
        yield using
        return
    with second_connection(using) as alias:
        yield alias


def keeps_snapshot(using: str) -> bool:
    """Return whether a transaction is open that reads from a snapshot. It also locks gaps between rows."""
    level = getattr(connections[using], "isolation_level", None)
    return session.in_transaction(using) and level not in session.WITHOUT_SNAPSHOTS


@contextmanager
def second_connection(using: str) -> Iterator[str]:
    """Yield an alias of the database outside the caller's transaction. The first statement connects."""
    alias = f"django_mqueue.second.{next(_numbers)}"
    wrapper = connections[using].copy(alias)
    wrapper.settings_dict["AUTOCOMMIT"] = True
    connections[alias] = wrapper
    try:
        yield alias
    finally:
        wrapper.close()
        del connections[alias]
