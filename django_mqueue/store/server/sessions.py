"""The sessions of the server, with the programs that opened them as far as the account may see that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db import DatabaseError, connections

from ..connection import errors, session, session_lock
from ..connection.program import VARIABLE

SUBSCRIBERS_MAX = 10_000


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
        VARIABLE,
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
