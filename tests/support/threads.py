"""Threads of a test with database connections of their own; transactions held open beside Django's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from unittest.mock import patch

import MySQLdb
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from .processes import wait_until
from .transactions import is_waiting_for_lock

Value = TypeVar("Value")


class Background(threading.Thread, Generic[Value]):
    """Runs a function at once in a thread; ``result`` is what it returned, or raises what it raised."""

    def __init__(self, function: Callable[[], Value], *, connection_id: int = 0) -> None:
        """``connection_id``: of the connection that it works with, where that is not one of Django's."""
        super().__init__(daemon=True)
        self._function = function
        self._connection_id = connection_id
        self._value: Value | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        connection_created.connect(self._note, dispatch_uid=self)
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
        finally:
            connection_created.disconnect(dispatch_uid=self)
            connections.close_all()

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for a lock of another transaction: looked at until it does, or has ended."""
        wait_until(
            lambda: not self.is_alive() or (self._connection_id and is_waiting_for_lock(self._connection_id)),
            "it waits for a lock, or ends",
            every=0.15,
        )
        return self.is_alive()

    def _note(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        if threading.current_thread() is self:
            self._connection_id = connection.connection.thread_id()

    def result(self, timeout: float = 20) -> Value:
        self.join(timeout)
        if self.is_alive():
            raise AssertionError(f"did not end in {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class RawConnection:
    """A connection that Django does not know, autocommit off: what it does is held until ``commit`` or ``rollback``."""

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


@contextmanager
def lost_after_its_commit(alias: str = "default") -> Iterator[None]:
    """The server ends this thread's connection after its next COMMIT, before Django turns autocommit on again."""
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
