"""The server kills a connection before a chosen statement of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from tests.support.threads import RawConnection
from tests.support.transactions import wait_until


@contextmanager
def killed_before(statement: int | None, killer: RawConnection) -> Iterator[None]:
    """Kill this thread's connection before the statement with this number, from 0. With None, never kill it."""
    seen = 0

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        nonlocal seen
        if seen == statement:
            kill(killer)
        seen += 1
        return execute(sql, params, many, context)

    connection.ensure_connection()
    with connection.execute_wrapper(count):
        yield


def kill(killer: RawConnection) -> None:
    """End this thread's connection. Return once the server has ended it."""
    thread = connection.connection.thread_id()
    killer.execute(f"KILL {thread:d}")

    def ended() -> bool:
        found = killer.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %s", [thread])
        return not found[0][0]

    wait_until(ended, "the killed connection has ended", every=0.002)
