"""A busy system of any size, inserted into an empty database by a few set-based statements.

It holds a day of messages in a thousand topics. ``orders`` has most of them, thousands of partitions, and three groups:
``billing`` is at the tail, ``reports`` is far behind, ``audit`` is paused. ``events`` has no keys, ``imports`` has one
key for all messages, ``visits`` has one key for each message. ``archive`` has messages only at the start of the log.
Watermarks, delivery state, leases and heartbeats are consistent, as workers would leave them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection

from tests.benchmarks import rows
from tests.support.many import NUMBERS

TABLES = (
    "queue_messages", "queue_delivery_state", "queue_partition_leases", "queue_offsets", "queue_subscriber_heartbeats",
)  # fmt: skip
CHUNK = 100_000
"""Rows of one statement, which is also one commit."""


@dataclass(frozen=True)
class Size:
    """``messages``: rows of the log. One in a hundred is a dead letter, one in five hundred is scheduled."""

    messages: int
    partitions: int = 5_000
    topics: int = 1_000


@dataclass(frozen=True)
class Group:
    """A consumer group. ``delivered`` and ``kept`` are fractions of the log.

    Messages up to ``delivered`` have been delivered. Delivery state exists from ``kept`` on. ``owners``: workers that
    share the partitions.
    """

    topic: str
    name: str
    delivered: float
    kept: float
    owners: int
    paused: bool = False


GROUPS = (
    Group("orders", "billing", 1.0, 0.75, 20),
    Group("orders", "reports", 0.40, 0.35, 2),
    Group("orders", "audit", 0.73, 0.70, 0, paused=True),
    Group("events", "analytics", 1.0, 0.97, 4),
    Group("imports", "importer", 0.80, 0.79, 1),
    Group("visits", "counter", 1.0, 0.97, 3),
    Group("mail", "mailer", 0.95, 0.90, 4),
    Group("archive", "archivist", 1.0, 1.0, 1),
)
SMALL_GROUP = "worker"
"""The group of each small topic."""


@dataclass(frozen=True)
class World:
    """``now``: the time of creation in epoch milliseconds. Code that reads the world should use ``as_of``."""

    size: Size
    now: int

    def row(self, number: int) -> int:
        """Return the offset of a row by its number: the ``number``-th of the log, from 0."""
        return number + 1

    def at(self, part: float) -> int:
        """Return the number of rows in the first ``part`` of the log. This is also the offset of the last of them."""
        return int(self.size.messages * part)

    @property
    def pending(self) -> int:
        """The number of newest rows that were not delivered to any group."""
        return max(self.size.messages // 20_000, 10)


def make(size: Size, tell: Callable[[str], None] = lambda text: None) -> World:
    """Fill the five tables, which must be empty."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
        world = World(size, int(cursor.fetchone()[0]))
        tell(f"{size.messages:,} messages")
        for base in range(0, size.messages, CHUNK):
            cursor.execute(rows.messages(size, world.now, base, min(CHUNK, size.messages - base), NUMBERS))
        end = size.messages - world.pending
        for group in GROUPS:
            tell(f"delivery state of {group.name}")
            last = min(world.at(group.delivered), end)
            for first in range(world.at(group.kept), last, CHUNK):
                cursor.execute(rows.state(group, world.now, first + 1, min(first + CHUNK, last), last))
            for statement in rows.places(group, world.now, world.at(group.kept), last):
                cursor.execute(statement)
        tell("small topics")
        for statement in rows.small_topics(size, world.now, SMALL_GROUP, end):
            cursor.execute(statement)
        tell("statistics")
        cursor.execute(f"ANALYZE TABLE {', '.join(TABLES)}")
        cursor.fetchall()
    return world


def found() -> World | None:
    """Return the world that the database already holds, or None if it is empty."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT `offset`, published_at FROM queue_messages ORDER BY `offset` DESC LIMIT 1")
        newest = cursor.fetchone()
        if newest is None:
            return None
        cursor.execute(
            "SELECT COUNT(DISTINCT partition_key) FROM queue_partition_leases WHERE consumer_group = 'billing'"
        )
        partitions = int(cursor.fetchone()[0])
        cursor.execute(
            "SELECT COUNT(*) FROM queue_offsets WHERE consumer_group = %s AND partition_key = ''",
            [SMALL_GROUP],
        )
        topics = int(cursor.fetchone()[0])
    if not topics:  # They are inserted last.
        raise RuntimeError("an earlier run was interrupted: drop this database, and run again")
    return World(Size(int(newest[0]), partitions, topics), int(newest[1]))


def clear() -> None:
    """Empty the tables, except for the gate's rows."""
    with connection.cursor() as cursor:
        for table in TABLES:
            if table == "queue_offsets":
                cursor.execute("DELETE FROM queue_offsets WHERE consumer_group > '' OR topic > ''")
            else:
                cursor.execute(f"TRUNCATE TABLE {table}")


@contextmanager
def as_of(world: World) -> Iterator[None]:
    """Set the clock of this thread's connection to the world's time, at which its workers are alive."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET timestamp = {world.now / 1000:.3f}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET timestamp = DEFAULT")
