"""How long a statement may wait for somebody's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError, connections

from . import session


@contextmanager
def hardly_any(using: str) -> Iterator[None]:
    """Statements within wait a second at most for a lock: error 1205 then. (MySQL knows no less; MariaDB does, but with
    0 a SKIP LOCKED that leaves something out has its COMMIT fail.)

    For the loops of workers, which must renew leases, where SKIP LOCKED does not help: an INSERT also waits for locks
    on the gap where it belongs. Within a transaction of the caller's nothing is changed.
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
