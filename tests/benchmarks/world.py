"""A system at work, of any size, put into an empty database by a few set-based statements.

A day of messages of a thousand topics. ``orders`` has most of them, thousands of partitions, and three groups:
``billing`` is at the tail, ``reports`` far behind, ``audit`` paused. ``events`` has no keys, ``imports`` one for all
its messages, ``visits`` one for each; ``archive`` has messages at the begin of the log alone. Watermarks, delivery
state, leases and heartbeats fit each other, as workers would have left them.
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
"""Rows of one statement, and one commit."""


@dataclass(frozen=True)
class Size:
    """``messages``: rows of the log; one in a hundred is a dead letter, one in five hundred scheduled."""

    messages: int
    partitions: int = 5_000
    topics: int = 1_000


@dataclass(frozen=True)
class Group:
    """Who consumes a topic. All numbers are parts of the log: up to where it has been delivered; from where on delivery
    state is kept; ``owners``: how many workers share the partitions."""

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
"""Of each of the small topics."""


@dataclass(frozen=True)
class World:
    """``now``: epoch milliseconds at which it was made; all that looks at it should believe that it is then."""

    size: Size
    now: int

    def row(self, number: int) -> int:
        """The offset of a row by its number: the ``number``-th of the log, from 0."""
        return number + 1

    def at(self, part: float) -> int:
        """The offset at this part of the log."""
        return int(self.size.messages * part)

    @property
    def pending(self) -> int:
        """How many of the newest rows nobody has been given."""
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
    """The world that a database already holds."""
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
    return World(Size(int(newest[0]), partitions, topics), int(newest[1]))


def clear() -> None:
    """Empty the tables, but for the gate's rows."""
    with connection.cursor() as cursor:
        for table in TABLES:
            if table == "queue_offsets":
                cursor.execute("DELETE FROM queue_offsets WHERE consumer_group > '' OR topic > ''")
            else:
                cursor.execute(f"TRUNCATE TABLE {table}")


@contextmanager
def as_of(world: World) -> Iterator[None]:
    """This thread's connection believes that it is the time when the world was made: workers are alive, and what was
    published last was published just now."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET timestamp = {world.now / 1000:.3f}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET timestamp = DEFAULT")
