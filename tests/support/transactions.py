"""Transactions that overlap on purpose. Each has a connection in a thread, and continues when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from django.db import connections, transaction

from .waiting import PATIENCE as PATIENCE
from .waiting import wait as wait
from .waiting import wait_until as wait_until

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Runs ``work()`` in a thread with its own connections, in autocommit.

    ``result`` returns the work's result, or raises its exception. ``connection_id`` names the connection that the work
    uses, if it is not Django's connection.
    """

    def __init__(
        self,
        work: Callable[[], Result],
        *,
        using: str = "default",
        isolation: str = "",
        connection_id: int = 0,
    ) -> None:
        self.work, self.using, self.isolation = work, using, isolation
        self.connection_id = connection_id
        self._value: list[Result] = []
        self._error: BaseException | None = None
        self.statements: list[str] = []
        self._connected, self._worked = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Background[Result]:
        """Start the thread. Return once the connection exists, before the work is done."""
        self._thread.start()
        assert self._connected.wait(PATIENCE), "no connection"
        return self

    def __enter__(self) -> Background[Result]:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.join()

    @property
    def is_done(self) -> bool:
        return self._worked.is_set()

    @property
    def is_blocked(self) -> bool:
        """True if the statement waits for a lock of another transaction. Blocks until it does, or the work ends."""
        wait_until(
            lambda: self.is_done or is_waiting_for_lock(self.connection_id, self.using),
            "it waits for a lock, or ends",
            every=0.15,
        )
        return not self.is_done

    def keeps_trying(self, statement: str = "", times: int = 3) -> bool:
        """Wait until the work repeats this statement ``times`` times, or ends. Return True if it has not ended."""

        def count() -> int:
            return sum(statement in sql for sql in list(self.statements))

        before = count()
        wait_until(
            lambda: self.is_done or count() >= before + times, f"{statement or 'a statement'} is repeated"
        )
        return not self.is_done

    def result(self) -> Result:
        """Wait for the work, and return its result or raise its exception."""
        assert self._worked.wait(PATIENCE), "the work is still under way"
        if self._error is not None:
            raise self._error
        return self._value[0]

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "a thread is still under way"

    def _run(self) -> None:
        try:
            with connections[self.using].cursor() as cursor:
                if self.isolation:
                    cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {self.isolation}")
                if not self.connection_id:
                    cursor.execute("SELECT CONNECTION_ID()")
                    self.connection_id = int(cursor.fetchone()[0])
            self._connected.set()
            self._do()
        except BaseException as error:
            self._error = error
        finally:
            self._connected.set()
            self._worked.set()
            connections.close_all()

    def _do(self) -> None:
        with connections[self.using].execute_wrapper(self._note):
            self._value.append(self.work())

    def _note(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements.append(sql)
        return execute(sql, params, many, context)


class _Undo(Exception):
    """Raised to roll the held transaction back."""


class HeldTransaction(Background[Result]):
    """Runs ``work()`` in a transaction that stays open until ``commit()`` or ``rollback()``.

    The context manager rolls back when it exits, unless the transaction has already ended.
    """

    def __init__(self, work: Callable[[], Result], *, using: str = "default", isolation: str = "") -> None:
        super().__init__(work, using=using, isolation=isolation)
        self._end = threading.Event()
        self._keep = False

    def start(self) -> HeldTransaction[Result]:
        super().start()
        return self

    def __enter__(self) -> HeldTransaction[Result]:
        """Start, and wait until the work is done. The transaction stays open."""
        self.start()
        self.result()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self.join()

    def commit(self) -> Result:
        """Commit, wait for the commit, and return the work's result."""
        return self._finish(keep=True)

    def rollback(self) -> Result:
        return self._finish(keep=False)

    def assert_blocks_nothing(self, work: Callable[[], object]) -> None:
        """Run ``work()`` in another thread. Fail if it waits for a lock. Work that is only slow passes."""
        with Background(work, using=self.using) as other:
            if other.is_blocked:
                self._end.set()
                raise AssertionError(f"it waits for a lock: {other.statements[-1]}")
            other.result()

    def _finish(self, *, keep: bool) -> Result:
        self._keep = keep
        self._end.set()
        self.join()
        return self.result()

    def _do(self) -> None:
        try:
            with transaction.atomic(using=self.using):
                super()._do()
                self._worked.set()
                assert self._end.wait(10 * PATIENCE), "nobody ended the held transaction"
                if not self._keep:
                    raise _Undo
        except _Undo:
            pass


@contextmanager
def rolled_back(using: str = "default") -> Iterator[None]:
    """An ``atomic`` block (a savepoint inside another block) that rolls back at its end."""
    try:
        with transaction.atomic(using=using):
            yield
            raise _Undo
    except _Undo:
        pass


def is_waiting_for_lock(connection_id: int, using: str = "default") -> bool:
    """Return True if InnoDB reports that the connection waits for a lock.

    Do not call it too often, because the server answers from a cache.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = %s"
            " AND trx_state = 'LOCK WAIT'",
            [connection_id],
        )
        return bool(cursor.fetchone()[0])


def wait_for_lock_wait(background: Background[Any]) -> None:
    """Return once the thread's statement waits for a lock. Fail if the work ends without a wait."""
    assert background.is_blocked, "it has ended, and waited for no lock"


@contextmanager
def statements(using: str = "default") -> Iterator[list[str]]:
    """Record the SQL that this thread's connection executes inside the block, without BEGIN and COMMIT."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    connections[using].ensure_connection()  # Exclude the first statements of a new connection.
    with connections[using].execute_wrapper(note):
        yield seen
