"""Transactions that overlap on purpose: each on a connection of its own in a thread, told when to go on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from django.db import connections, transaction

Result = TypeVar("Result")

PATIENCE = float(os.environ.get("MQUEUE_TEST_PATIENCE", "20"))
"""Seconds that anything may take before a test fails for having waited."""


def wait_until(
    condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE, every: float = 0.02
) -> Any:
    """The condition's first true value. Fails naming ``what`` when it stays false for ``seconds``."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        pause.wait(every)
    return value


def wait(seconds: float) -> None:
    """Let time pass where time itself is the subject (a lease, a retention), not to hope for something."""
    threading.Event().wait(seconds)


class Background(Generic[Result]):
    """``work()`` in a thread with database connections of its own, each statement committing by itself."""

    def __init__(self, work: Callable[[], Result], *, using: str = "default", isolation: str = "") -> None:
        self.work, self.using, self.isolation = work, using, isolation
        self.connection_id = 0
        self._value: list[Result] = []
        self._error: BaseException | None = None
        self._connected, self._worked = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Background[Result]:
        """Begin; returns once the connection is there, not once the work is done."""
        self._thread.start()
        assert self._connected.wait(PATIENCE), "no connection"
        return self

    def __enter__(self) -> Background[Result]:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.join()

    @property
    def is_done(self) -> bool:
        return self._worked.is_set()

    def is_done_within(self, seconds: float) -> bool:
        return self._worked.wait(seconds)

    def result(self) -> Result:
        """What the work returned, waited for; raises what it raised."""
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
        self._value.append(self.work())


class _Undo(Exception):
    """Rolls the held transaction back."""


class HeldTransaction(Background[Result]):
    """``work()`` inside a transaction that stays open until ``commit()`` or ``rollback()``.

    As a context manager it rolls back on leaving, unless it was ended before.
    """

    def __init__(self, work: Callable[[], Result], *, using: str = "default", isolation: str = "") -> None:
        super().__init__(work, using=using, isolation=isolation)
        self._end = threading.Event()
        self._keep = False

    def start(self) -> HeldTransaction[Result]:
        super().start()
        return self

    def __enter__(self) -> HeldTransaction[Result]:
        """Begin, and wait until the work is done and the transaction held."""
        self.start()
        self.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self.join()

    def commit(self) -> Result:
        """Commit, and wait until that is done; the work's result."""
        return self._finish(keep=True)

    def rollback(self) -> Result:
        return self._finish(keep=False)

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
    """An ``atomic`` block (a savepoint inside another one) that is rolled back at its end."""
    try:
        with transaction.atomic(using=using):
            yield
            raise _Undo
    except _Undo:
        pass


def is_waiting_for_lock(connection_id: int, using: str = "default") -> bool:
    """Whether InnoDB has that connection waiting. Ask not too often: the server refreshes a cache of it."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = %s"
            " AND trx_state = 'LOCK WAIT'",
            [connection_id],
        )
        return bool(cursor.fetchone()[0])


def wait_for_lock_wait(background: Background[Any], using: str = "default") -> None:
    """Return once that thread's statement waits for a lock of another transaction."""
    wait_until(
        lambda: is_waiting_for_lock(background.connection_id, using),
        "a statement waits for a lock",
        every=0.25,
    )


@contextmanager
def statements(using: str = "default") -> Iterator[list[str]]:
    """The SQL that this thread's connection executes inside the block (BEGIN and COMMIT are not among it)."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    connections[using].ensure_connection()  # What a new one is told at first is not the block's.
    with connections[using].execute_wrapper(note):
        yield seen
