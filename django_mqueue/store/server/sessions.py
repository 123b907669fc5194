"""Sessions of the server with their programs, open transactions, and waits for locks on the queue's tables.

The tables for locks differ between MariaDB and MySQL. Both need the privilege PROCESS, and MySQL also SELECT on the
performance schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db import DatabaseError, connections

from ..connection import errors, session, session_lock
from ..connection.dialect import is_mariadb, placeholders
from ..connection.session_variables import PROGRAM

SUBSCRIBERS_MAX = 10_000
TABLES = (
    "queue_messages", "queue_delivery_state", "queue_partition_leases", "queue_offsets", "queue_subscriber_heartbeats",
)  # fmt: skip
METADATA_WAIT = "Waiting for table metadata lock"
"""The state of ALTER TABLE while a transaction uses the table, and of statements that wait for this ALTER TABLE."""

_NOW = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')"
"""The server shows the times of transactions in its own time zone, and not in that of the session."""
_GATE = re.compile(r"gate-(\d{3})-slot-")


@dataclass(frozen=True)
class Session:
    """A session. ``command``: ``Sleep`` if the client sends nothing. ``seconds``: for how long.

    ``program``: the name that the program has set, or ''. ``pid``: the client's process id, if the client library sends
    it and the account may see it.
    """

    id: int
    user: str
    host: str
    command: str
    seconds: int
    state: str
    statement: str
    program: str = ""
    pid: int | None = None


def sessions(using: str) -> dict[int, Session]:
    """Return the sessions that the account may see: without PROCESS, its own."""
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW FULL PROCESSLIST")
        rows = [row[:8] for row in cursor.fetchall()]
    found = {
        int(id): Session(
            int(id), user, host, command, int(seconds or 0), state or "", _text(statement).strip()
        )
        for id, user, host, _, command, seconds, state, statement in rows
    }
    programs, attributes, workers = _programs(using), _attributes(using), _workers(using)
    return {
        id: replace(
            one,
            program=programs.get(id) or attributes.get((id, "program_name")) or workers.get(id, ""),
            pid=_number(attributes.get((id, "_pid"))),
        )
        for id, one in found.items()
    }


def _programs(using: str) -> dict[int, str]:
    rows = _seen(
        using,
        "SELECT t.PROCESSLIST_ID, v.VARIABLE_VALUE FROM performance_schema.user_variables_by_thread v"
        " JOIN performance_schema.threads t ON t.THREAD_ID = v.THREAD_ID WHERE v.VARIABLE_NAME = %s",
        PROGRAM,
    )
    return {int(id): _text(value) for id, value in rows or () if id is not None}


def _attributes(using: str) -> Mapping[tuple[int, str], str]:
    """Return the attributes that client libraries send, by session and name.

    Without privileges on the performance schema, MySQL shows the attributes of the account's own sessions, and MariaDB
    shows none.
    """
    sql = (
        "SELECT PROCESSLIST_ID, ATTR_NAME, ATTR_VALUE FROM performance_schema.{} WHERE ATTR_NAME IN (%s, %s)"
    )
    names = ("program_name", "_pid")
    rows = _seen(using, sql.format("session_connect_attrs"), *names)
    if rows is None:
        rows = _seen(using, sql.format("session_account_connect_attrs"), *names)
    return {(int(id), str(name)): _text(value) for id, name, value in rows or ()}


def _workers(using: str) -> dict[int, str]:
    """Return the names of workers by the session of their loop, which holds a named lock. It needs no privilege."""
    rows = _seen(
        using,
        f"SELECT DISTINCT {session_lock.user_of(using)}, subscriber_name FROM queue_subscriber_heartbeats"
        f" WHERE session_lock <> '' AND deregistered_at IS NULL LIMIT {SUBSCRIBERS_MAX:d}",
    )
    return {int(id): f"worker {name}" for id, name in rows or () if id is not None}


def _seen(using: str, sql: str, *params: str) -> list[Any] | None:
    """Return the rows; None if the account may not read them, the table does not exist, or it is locked."""
    try:
        return session.fetch(using, sql, params)
    except DatabaseError as error:
        if errors.is_denied(error) or errors.is_no_table(error) or errors.is_lock_wait(error):
            return None
        raise


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


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
