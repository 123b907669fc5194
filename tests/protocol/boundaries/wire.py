"""Count every boundary of every statement that a process sends to its server, and end the process at one of them.

The module wraps the driver's own connection, below Django and below the queue. Statements, COMMIT, ROLLBACK,
savepoints and changes of autocommit reach a server in no other way, from any code and on any connection.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from MySQLdb import connections as driver

BEFORE, DURING, AFTER = "before", "during", "after"


@dataclass
class Wire:
    """Count the boundaries while ``counting``. At number ``die_at``, send ``last_words`` and end this process.

    A statement has a boundary before it and one after its response. A statement that commits, by name or because it is
    outside a transaction, has a third boundary: it is sent, and its response is never read.
    """

    die_at: int | None
    last_words: Callable[[dict[str, Any]], None]
    counting: bool = False
    count: int = 0
    commits: list[int] = field(default_factory=list)
    """The numbers of the boundaries at which a commit is sent and its response is not read."""
    connections: set[int] = field(default_factory=set)
    _one: threading.Lock = field(default_factory=threading.Lock)
    """Threads of handlers also send statements. The lock lets only one thread end the process, and only once."""

    def install(self) -> None:
        """Wrap the driver's connections for the lifetime of this process."""
        base: Any = driver._mysql.connection

        def query(connection: Any, sql: Any) -> None:
            sql = bytes(sql) if isinstance(sql, bytearray) else sql
            commits = sql if connection.get_autocommit() else None
            self._walk(connection, sql, lambda: base.query(connection, sql), sent=commits)

        def commit(connection: Any) -> None:
            self._walk(connection, "COMMIT", lambda: base.commit(connection), sent="COMMIT")

        def rollback(connection: Any) -> None:
            self._walk(connection, "ROLLBACK", lambda: base.rollback(connection))

        def autocommit(connection: Any, on: bool) -> None:
            if connection.get_autocommit() != bool(on):
                text = f"SET autocommit = {int(on)}"
                self._walk(connection, text, lambda: base.autocommit(connection, bool(on)))

        for function in (query, commit, rollback, autocommit):
            setattr(driver.Connection, function.__name__, function)

    def _walk(self, connection: Any, what: Any, send: Callable[[], None], sent: Any = None) -> None:
        self.connections.add(connection.thread_id())
        self._boundary(BEFORE, what)
        if sent is not None:
            self._boundary(DURING, what, lambda: connection.send_query(sent))
        send()
        self._boundary(AFTER, what)

    def _boundary(self, phase: str, what: Any, act: Callable[[], None] | None = None) -> None:
        if not self.counting:
            return
        with self._one:
            if phase == DURING:
                self.commits.append(self.count)
            if self.count == self.die_at:
                text = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
                self.last_words(
                    {"phase": phase, "statement": text[:300], "connections": sorted(self.connections)}
                )
                if act is not None:
                    act()
                os.kill(os.getpid(), signal.SIGKILL)
            self.count += 1
