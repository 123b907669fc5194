"""State of groups that are no longer registered, and leases that are not renewed. Takes no lock.

The tables may be large, so names are found by skip scans, and rows are counted up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..connection import session
from ..connection.dialect import NOW_MS
from ..queries import search
from ..queries.search import GROUP_INDEXES
from ..queries.skip_scan import Names

COUNT_MAX = 1_000

STATE = ("queue_delivery_state", "queue_partition_leases", "queue_offsets")
"""The tables whose rows a group leaves behind when its registration is deleted by hand."""


def pairs(using: str, table: str) -> Iterator[tuple[str, str]]:
    """Yield each (topic, group) for which the table has rows."""
    for group in search.groups(using, table):
        names = Names(
            table, GROUP_INDEXES[table], "topic", "consumer_group, topic", "consumer_group = %s AND ", (group,),
        )  # fmt: skip
        yield from ((topic, group) for topic in names.all(using))


def count(using: str, table: str, topic: str, group: str) -> int:
    """Count the rows of a group, up to ``COUNT_MAX``."""
    rows = session.fetch(
        using,
        f"SELECT COUNT(*) FROM (SELECT 1 FROM {table} FORCE INDEX ({GROUP_INDEXES[table]})"
        f" WHERE consumer_group = %s AND topic = %s LIMIT {COUNT_MAX:d}) x",
        [group, topic],
    )
    return int(rows[0][0])


def without_message(using: str, topic: str, group: str) -> int:
    """Count the rows without a message among the first ``COUNT_MAX`` delivery states of a group."""
    rows = session.fetch(
        using,
        "SELECT COUNT(*) FROM (SELECT message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s ORDER BY partition_key, message_offset LIMIT {COUNT_MAX:d}) s"
        " LEFT JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = s.message_offset"
        " WHERE m.`offset` IS NULL",
        [group, topic],
    )
    return int(rows[0][0])


def delete_without_message(topic: str, group: str) -> str:
    """Return statements, for people, that delete a group's delivery states that have no message.

    At REPEATABLE READ, the join would lock the end of the log, so that publishers wait.
    """
    topic, group = ("'" + text.replace("\\", "\\\\").replace("'", "''") + "'" for text in (topic, group))
    return (
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
        " DELETE s FROM queue_delivery_state s LEFT JOIN queue_messages m ON m.`offset` = s.message_offset"
        f" WHERE s.consumer_group = {group} AND s.topic = {topic} AND m.`offset` IS NULL;"
    )


class Expired(NamedTuple):
    """Leases of one holder that it has not renewed in time. ``silent_ms``: the time since the oldest renewal."""

    holder: str
    name: str
    leases: int
    silent_ms: int


def expired_leases(using: str, topic: str, group: str, lease_ms: int) -> list[Expired]:
    """Return the expired leases of a group by holder, at most 100 holders, the longest expired first."""
    rows = session.fetch(
        using,
        f"SELECT holder, MAX(leased_by), COUNT(*), MAX({NOW_MS} - lease_renewed_at) AS silent"
        " FROM queue_partition_leases FORCE INDEX (queue_leases_renewed) WHERE consumer_group = %s AND topic = %s"
        f" AND holder > '' AND lease_renewed_at <= {NOW_MS} - %s GROUP BY holder ORDER BY silent DESC LIMIT 100",
        [group, topic, lease_ms],
    )
    return [
        Expired(str(holder), str(name), int(number), int(silent)) for holder, name, number, silent in rows
    ]
