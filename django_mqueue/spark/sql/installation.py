"""The identity of an installation of the queue: a random number in the database, and the database's server.

A copy of the database has the same number on another server, or under another name. The first call of ``look`` creates
the row. No other module reads the number.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from ...store.connection import session

ROW = "installation"


@dataclass(frozen=True)
class Installation:
    """The identity of a database.

    ``id``: 32 hexadecimal digits. ``server``: the identity that the server reports, and the database's name.
    """

    id: str
    server: str


def look(using: str) -> Installation:
    """Return the identity of the database, and create a missing one. Concurrent calls return the same identity."""
    found = _numbers(using)
    if found is None:
        session.execute(
            using,
            "INSERT INTO queue_offsets (consumer_group, topic, partition_key, offset_acked, scan_offset, paused,"
            " updated_at) VALUES ('', '', %s, %s, %s, 0, 0) ON DUPLICATE KEY UPDATE offset_acked = offset_acked",
            [ROW, secrets.randbits(63), secrets.randbits(63)],
        )
        found = _numbers(using)
    assert found is not None
    # MySQL has server_uuid, MariaDB has server_uid.
    server = session.fetch(using, "SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')")
    name = session.fetch(using, "SELECT DATABASE()")[0][0]
    return Installation(f"{found[0]:016x}{found[1]:016x}", f"{server[0][1] if server else ''}/{name}")


def _numbers(using: str) -> tuple[int, int] | None:
    rows = session.fetch(
        using,
        "SELECT offset_acked, scan_offset FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        " WHERE consumer_group = '' AND topic = '' AND partition_key = %s",
        [ROW],
    )
    return (int(rows[0][0]), int(rows[0][1])) if rows else None
