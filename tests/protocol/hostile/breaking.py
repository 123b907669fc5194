"""Faults at a chosen statement: the connection is killed there, or the answer to its COMMIT is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections

from tests.support.threads import end_session

Act = Callable[[], object]

LOST = 2013


@contextmanager
def before_statement(beginning: str, act: Act, *, holding: str = "", times: int = 1) -> Iterator[list[str]]:
    """Call ``act`` just before the first ``times`` statements of this thread that begin with ``beginning``.

    The statement must also contain ``holding``. The yielded list has the statements before which ``act`` was called.
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
    """Let the server close this thread's connection and roll back. The next statement fails."""
    connections["default"].ensure_connection()
    end_session(connections["default"].connection.thread_id())


@contextmanager
def killed_at(beginning: str, *, holding: str = "") -> Iterator[None]:
    """Kill the connection before the first statement that begins with ``beginning``.

    Fail if there is no such statement.
    """
    with before_statement(beginning, kill_own_connection, holding=holding) as done:
        yield
    assert done, f"no statement began with {beginning!r}: this proves nothing"


@contextmanager
def lost_answer_to_commit(beginning: str, code: int = LOST) -> Iterator[None]:
    """Commit the first transaction with a statement that begins with ``beginning``, then raise an error.

    By default the connection is also lost. Another ``code`` raises another error, for example that of a failover.
    """
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
