"""The identity of an installation of the queue: a random number in the database, and the database's server.

A copy of the database has the same number on another server, or under another name.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from ...store.connection import session
from . import copies

ROW = "installation"


@dataclass(frozen=True)
class Installation:
    """The identity of a database: 32 hexadecimal digits, and the server's own identity with the database's name."""

    id: str
    server: str


def identify(using: str) -> Installation:
    """Return the identity of the database, and create a missing one. Concurrent calls return the same identity."""
    found = copies.mark(using, "", ROW)
    if found is None:
        new = (ROW, secrets.randbits(63), secrets.randbits(63))
        session.run(using, lambda cursor: copies.begin_marks(cursor, "", [new]))
        found = copies.mark(using, "", ROW)
    assert found is not None
    # MySQL has server_uuid, MariaDB has server_uid.
    server = session.fetch(using, "SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')")
    return Installation(
        f"{found.position:016x}{found.number:016x}",
        f"{server[0][1] if server else ''}/{session.database_name(using)}",
    )
