"""A short lock wait timeout for some statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError, connections

from . import session


@contextmanager
def short_lock_wait_timeout(using: str) -> Iterator[None]:
    """Limit the lock wait of statements in this block to one second. A statement that waits longer fails with error
    1205.

    One second is the minimum of MySQL. MariaDB allows 0, but then the COMMIT after a SKIP LOCKED that skipped a row
    fails.

    The block is for the loops of workers, which must renew leases. SKIP LOCKED does not help everywhere: an INSERT
    also waits for locks on the gap that it goes into. In a caller's transaction nothing is changed.
    """
    if session.in_transaction(using) or session.waits_briefly(using):
        yield
        return
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        before = int(cursor.fetchone()[0])
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    mine = connections[using].connection
    try:
        yield
    finally:
        if connections[using].connection is mine:
            with suppress(DatabaseError), connections[using].cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [before])
