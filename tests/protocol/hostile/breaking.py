"""Things that go wrong at a chosen statement: the connection is killed there, or the answer to its COMMIT is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections

from tests.support.threads import raw_connection
from tests.support.waiting import wait_until

Act = Callable[[], object]

LOST = 2013


@contextmanager
def before_statement(beginning: str, act: Act, *, holding: str = "", times: int = 1) -> Iterator[list[str]]:
    """Calls ``act`` just before the first statement (or the first ``times`` ones) of this thread that begins so.

    ``holding``: a text that it holds besides. The list is of the statements where that was done.
    """
    done: list[str] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if len(done) < times and sql.lstrip("(").startswith(beginning) and holding in sql:
            done.append(sql)
            act()
        return execute(sql, params, many, context)

    connections["default"].ensure_connection()
    with connections["default"].execute_wrapper(look):
        yield done


def kill_own_connection() -> None:
    """The server closes this thread's connection, and rolls back; the next statement finds out."""
    connections["default"].ensure_connection()
    number = connections["default"].connection.thread_id()
    with raw_connection() as other:
        other.execute("KILL %s", [number])
        ended = "SELECT 1 FROM information_schema.PROCESSLIST WHERE id = %s"
        wait_until(lambda: not other.execute(ended, [number]), "the server has ended the connection")


@contextmanager
def killed_at(beginning: str, *, holding: str = "") -> Iterator[None]:
    """The connection is killed before the first statement that begins so. Fails if there was none."""
    with before_statement(beginning, kill_own_connection, holding=holding) as done:
        yield
    assert done, f"no statement began with {beginning!r}: this proves nothing"


@contextmanager
def lost_answer_to_commit(beginning: str, code: int = LOST) -> Iterator[None]:
    """The first transaction with a statement that begins so is committed, but the answer to its COMMIT is lost with the
    connection; or is another error, as of a server whose place another has taken."""
    connection: Any = connections["default"]
    armed: list[bool] = []
    commit = connection._commit

    def commit_and_lose_the_answer() -> None:
        commit()
        if armed == [True]:
            armed.append(False)
            if code == LOST:
                kill_own_connection()
            raise OperationalError(code, "the answer to COMMIT was not heard")

    with before_statement(beginning, lambda: armed.append(True)):
        connection._commit = commit_and_lose_the_answer
        try:
            yield
        finally:
            connection._commit = commit
    assert armed == [True, False], "no such COMMIT: this proves nothing"
