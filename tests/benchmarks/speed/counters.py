"""Count what work costs: seconds, statements, commits, and CPU seconds of this process and of the server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import MySQLdb

from tests.databases import connection_parameters

TICKS = os.sysconf("SC_CLK_TCK")


def connect(url: str) -> Any:
    """Return a connection without autocommit. ``Meter`` also counts its statements."""
    return MySQLdb.connect(**connection_parameters(url))


class Meter:
    """Counts from ``start`` to ``stop``. ``server``: the process id of the server.

    ``commits``: transactions in the binary log, where the server counts them (MariaDB); otherwise COMMITs.
    """

    def __init__(self, url: str, server: int) -> None:
        self._connection, self._server = connect(url), server

    def start(self) -> None:
        self._before = self._now()

    def stop(self) -> dict[str, float]:
        return {name: value - self._before[name] for name, value in self._now().items()}

    def _now(self) -> dict[str, float]:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Binlog_commits', 'Com_commit')"
            )
            found = {name.lower(): int(value) for name, value in cursor.fetchall()}
        return {
            "seconds": time.perf_counter(),
            "statements": found["questions"],
            "commits": found.get("binlog_commits", found["com_commit"]),
            "worker_cpu": time.process_time(),
            "server_cpu": cpu_of(self._server),
        }


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / TICKS
