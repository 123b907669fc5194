"""Open transactions, and statements that wait for locks on the queue's tables.

MariaDB and MySQL have different tables for this. Both need the privilege PROCESS, and MySQL also SELECT on the
performance schema.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..connection import session
from ..connection.dialect import is_mariadb, placeholders

TABLES = (
    "queue_messages", "queue_delivery_state", "queue_partition_leases", "queue_offsets", "queue_subscriber_heartbeats",
)  # fmt: skip
METADATA_WAIT = "Waiting for table metadata lock"
"""The state of ALTER TABLE while a transaction uses the table, and of statements that wait for this ALTER TABLE."""

_NOW = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')"
"""The server shows the times of transactions in its own time zone, and not in that of the session."""
_GATE = re.compile(r"gate-(\d{3})-slot-")


class OpenTransaction(NamedTuple):
    """An open transaction. ``changed``, ``locked``: how many rows of all tables it has changed and locked."""

    session: int
    seconds: int
    changed: int
    locked: int


class LockWait(NamedTuple):
    """A session that waits for a row lock.

    ``record``: the values of the index entry. ``blocking``: 0 if the server does not report the blocking session.
    """

    waiting: int
    blocking: int
    seconds: int
    table: str
    index_name: str
    record: str


def open_transactions(using: str) -> list[OpenTransaction]:
    """Return the open transactions, the oldest first."""
    rows = session.fetch(
        using,
        f"SELECT trx_mysql_thread_id, GREATEST(TIMESTAMPDIFF(SECOND, trx_started, {_NOW}), 0), trx_rows_modified,"
        " trx_rows_locked FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id > 0 ORDER BY trx_started",
    )
    return [OpenTransaction(*map(int, row)) for row in rows]


def lock_waits(using: str) -> list[LockWait]:
    """Return the waits for rows of the queue's tables, the longest first."""
    rows = _mariadb_waits(using) if is_mariadb(using) else _mysql_waits(using)
    return sorted(rows, key=lambda one: (-one.seconds, one))


def _mariadb_waits(using: str) -> list[LockWait]:
    rows = session.fetch(
        using,
        f"SELECT DATABASE(), r.trx_mysql_thread_id, b.trx_mysql_thread_id,"
        f" GREATEST(TIMESTAMPDIFF(SECOND, r.trx_wait_started, {_NOW}), 0),"
        " l.lock_table, COALESCE(l.lock_index, ''), COALESCE(l.lock_data, '')"
        " FROM information_schema.INNODB_LOCK_WAITS w"
        " JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id"
        " JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id"
        " JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.requested_lock_id",
    )
    found = []
    for database, waiting, blocking, seconds, place, index, record in rows:
        schema, table = (_decoded(name) for name in str(place).strip("`").split("`.`", 1))
        if schema.lower() == str(database).lower() and table in TABLES:
            found.append(LockWait(int(waiting), int(blocking), int(seconds or 0), table, index, record))
    return found


def _decoded(name: str) -> str:
    """Return a name as SQL writes it. InnoDB stores other characters than letters and digits as ``@`` and a number."""
    return re.sub(r"@([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), name)


def _mysql_waits(using: str) -> list[LockWait]:
    rows = session.fetch(
        using,
        "SELECT r.PROCESSLIST_ID, b.PROCESSLIST_ID, l.OBJECT_NAME, COALESCE(l.INDEX_NAME, ''),"
        " COALESCE(l.LOCK_DATA, '') FROM performance_schema.data_lock_waits w"
        " JOIN performance_schema.data_locks l"
        " ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID AND l.ENGINE = w.ENGINE"
        " JOIN performance_schema.threads r ON r.THREAD_ID = w.REQUESTING_THREAD_ID"
        " JOIN performance_schema.threads b ON b.THREAD_ID = w.BLOCKING_THREAD_ID"
        f" WHERE l.OBJECT_SCHEMA = DATABASE() AND l.OBJECT_NAME IN ({placeholders(TABLES)})",
        TABLES,
    )
    seconds: dict[int, int] = dict(
        session.fetch(
            using,
            f"SELECT trx_mysql_thread_id, GREATEST(TIMESTAMPDIFF(SECOND, trx_wait_started, {_NOW}), 0)"
            " FROM information_schema.INNODB_TRX WHERE trx_wait_started IS NOT NULL",
        )
    )
    # Several locks of one transaction may block the same statement.
    return list(
        {
            LockWait(int(waiting), int(blocking or 0), int(seconds.get(waiting) or 0), table, index, record)
            for waiting, blocking, table, index, record in rows
        }
    )


def gates_held(using: str) -> dict[int, set[int]] | None:
    """Return the sessions that have locked rows of the queue's tables, each with the gates that it holds.

    A session that holds a gate has published in its open transaction. None on MariaDB, which does not show locks that
    block no other transaction.
    """
    if is_mariadb(using):
        return None
    rows = session.fetch(
        using,
        "SELECT DISTINCT t.PROCESSLIST_ID, IF(l.INDEX_NAME = 'queue_offsets_partition' AND l.LOCK_MODE LIKE %s"
        " AND l.LOCK_DATA LIKE %s, l.LOCK_DATA, '') FROM performance_schema.data_locks l"
        " JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID WHERE l.OBJECT_SCHEMA = DATABASE()"
        f" AND l.OBJECT_NAME IN ({placeholders(TABLES)}) AND l.LOCK_TYPE = 'RECORD' AND l.LOCK_STATUS = 'GRANTED'",
        ["S%", "%gate-%", *TABLES],
    )
    found: dict[int, set[int]] = {}
    for id, record in rows:
        if id is not None:
            gate = _GATE.search(str(record))
            found.setdefault(int(id), set()).update({int(gate[1])} if gate else ())
    return found


def metadata_blockers(using: str) -> dict[int, list[tuple[int, str]]] | None:
    """Return for each session that waits for a table's metadata lock: the sessions that have one, and the table.

    None on MariaDB, which has this table but does not fill it by default.
    """
    if is_mariadb(using):
        return None
    rows = session.fetch(
        using,
        "SELECT r.PROCESSLIST_ID, b.PROCESSLIST_ID, w.OBJECT_NAME FROM performance_schema.metadata_locks w"
        " JOIN performance_schema.metadata_locks h ON h.OBJECT_TYPE = w.OBJECT_TYPE"
        " AND h.OBJECT_SCHEMA = w.OBJECT_SCHEMA AND h.OBJECT_NAME = w.OBJECT_NAME AND h.LOCK_STATUS = 'GRANTED'"
        " AND h.OWNER_THREAD_ID <> w.OWNER_THREAD_ID"
        " JOIN performance_schema.threads r ON r.THREAD_ID = w.OWNER_THREAD_ID"
        " JOIN performance_schema.threads b ON b.THREAD_ID = h.OWNER_THREAD_ID"
        " WHERE w.OBJECT_TYPE = 'TABLE' AND w.OBJECT_SCHEMA = DATABASE() AND w.LOCK_STATUS = 'PENDING'"
        f" AND w.OBJECT_NAME IN ({placeholders(TABLES)})",
        TABLES,
    )
    found: dict[int, list[tuple[int, str]]] = {}
    for waiting, blocking, table in rows:
        if blocking is not None and (int(blocking), str(table)) not in found.setdefault(int(waiting), []):
            found[int(waiting)].append((int(blocking), str(table)))
    return found
