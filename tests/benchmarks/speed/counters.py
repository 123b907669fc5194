"""Count what work costs: seconds, statements, commits, and CPU seconds of the worker and of the server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import MySQLdb

from tests.databases import connection_parameters

TICKS = os.sysconf("SC_CLK_TCK")


def connect(url: str) -> Any:
    """Return a connection without autocommit. A ``Meter`` counts its statements: it reads the server's counters."""
    return MySQLdb.connect(**connection_parameters(url))


class Meter:
    """Counts from ``start`` to ``stop``. ``server`` and ``worker`` return CPU seconds.

    ``url``: the database server, or None for no statements and commits. ``commits``: transactions in the binary log.
    MariaDB counts them. For MySQL, the transactions that used the cache of the binary log are the same.
    """

    def __init__(
        self, url: str | None, server: Callable[[], float], worker: Callable[[], float] = time.process_time
    ) -> None:
        self._connection = connect(url) if url else None
        self._server, self._worker = server, worker

    def start(self) -> None:
        self._before = self._now()

    def stop(self) -> dict[str, float]:
        return {name: value - self._before[name] for name, value in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {
            **self._statements(),
            "seconds": time.perf_counter(),
            "worker_cpu": self._worker(),
            "server_cpu": self._server(),
        }

    def _statements(self) -> dict[str, float]:
        if self._connection is None:
            return {}
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Binlog_commits', 'Binlog_cache_use')"
            )
            found = {name.lower(): int(value) for name, value in cursor.fetchall()}
        return {
            "statements": found["questions"],
            "commits": found.get("binlog_commits", found["binlog_cache_use"]),
        }


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    return sum(map(int, _fields(pid)[11:13])) / TICKS


def cpu_of_session(leader: int) -> float:
    """Return the CPU seconds of all processes of a session, also of ended children."""
    return sum(
        sum(map(int, fields[11:15]))
        for process in Path("/proc").glob("[0-9]*")
        if (fields := _fields(int(process.name))) and int(fields[3]) == leader
    ) / TICKS  # fmt: skip


def _fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on, or none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def memory_of(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024
