"""Database connections outside Django, connections that are ended, and one that is lost just after a COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import MySQLdb
from django.db import DatabaseError, connections

from django_mqueue.store.connection.errors import is_no_thread

from .transactions import Background as Background
from .waiting import wait_until


class RawConnection:
    """A connection outside Django, without autocommit. It keeps its locks until ``commit`` or ``rollback``."""

    def __init__(self, alias: str = "default") -> None:
        parameters = connections[alias].get_connection_params()
        self._connection = MySQLdb.connect(**parameters)
        self._connection.autocommit(False)
        self.connection_id = int(self._connection.thread_id())
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.commit()

    def execute(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall() or ())

    @property
    def id(self) -> int:
        return int(self._connection.thread_id())

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def raw_connection(alias: str = "default") -> Iterator[RawConnection]:
    connection = RawConnection(alias)
    try:
        yield connection
    finally:
        connection.close()


def other_connections() -> list[int]:
    """Return the server's ids of all other connections to this database."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        return [int(number) for (number,) in cursor.fetchall()]


def kill_connections(numbers: Iterable[int]) -> None:
    """Let the server end connections. Some may have ended by themselves."""
    with connections["default"].cursor() as cursor:
        for number in numbers:
            try:
                cursor.execute("KILL %s", [number])
            except DatabaseError as error:
                if not is_no_thread(error):
                    raise


def kill_others() -> None:
    """Let the server end all other connections to this database."""
    kill_connections(other_connections())


def end_session(number: int) -> None:
    """Let the server end a connection, and wait until it has."""
    with raw_connection() as other:
        other.execute("KILL %s", [number])
        ended = "SELECT 1 FROM information_schema.PROCESSLIST WHERE id = %s"
        wait_until(lambda: not other.execute(ended, [number]), "the server has ended the connection")


@contextmanager
def lost_after_its_commit(alias: str = "default") -> Iterator[None]:
    """Let the server end this thread's connection after its next COMMIT, before Django enables autocommit again."""
    connection = connections[alias]
    turn: Callable[[bool], None] = connection._set_autocommit  # type: ignore[attr-defined]
    turned: list[bool] = []

    def kill_once(on: bool) -> None:
        turned.append(on)
        if turned == [False, True]:
            with raw_connection(alias) as killer:
                killer.execute(f"KILL {connection.connection.thread_id()}")
        turn(on)

    connection.ensure_connection()
    with patch.object(connection, "_set_autocommit", kill_once):
        yield
    assert turned[:2] == [False, True], "nothing was committed"
