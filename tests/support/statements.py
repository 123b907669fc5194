"""Count the work of a connection: statements, commits, and rows read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import connections
from django.test.utils import CaptureQueriesContext

_TRANSACTIONS = ("BEGIN", "COMMIT", "ROLLBACK")
CALM = {
    "DISCOVERY_INTERVAL": 3600,
    "LEASE_DURATION": 36_000,
    "LEASE_RENEWAL_INTERVAL": 3600,
    "GC_INTERVAL": 3600,
}
"""Values of ``MQUEUE`` with which no periodic work is due, so that only the cost of the other work is left."""


@dataclass
class Cost:
    """``rows`` is the number of rows that the storage engine returned for this connection."""

    statements: list[str] = field(default_factory=list)
    commits: int = 0
    rows: int = 0

    def __str__(self) -> str:
        texts = "\n".join(f"  {sql[:300]}" for sql in self.statements)
        return f"{len(self.statements)} statements, {self.commits} commits, {self.rows} rows read:\n{texts}"

    @property
    def count(self) -> int:
        return len(self.statements)


def rows_read(alias: str = "default") -> int:
    """Return the sum of ``Handler_read%`` of this thread's connection since it began."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler\\_read%%'")
        return sum(int(value) for _, value in cursor.fetchall())


@contextmanager
def counted(alias: str = "default") -> Iterator[Cost]:
    """Count the work of the block on this thread's connection. Reading the counters does not count."""
    cost = Cost()
    first = rows_read(alias)
    before = rows_read(alias)
    with CaptureQueriesContext(connections[alias]) as captured:
        yield cost
    cost.rows = rows_read(alias) - before - (before - first)
    texts = [query["sql"] for query in captured.captured_queries]
    cost.statements = [sql for sql in texts if sql not in _TRANSACTIONS]
    cost.commits = texts.count("COMMIT")
