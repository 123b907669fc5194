"""Fill the tables with many messages, their state, leases, positions and dead letters, in a few statements."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from django_mqueue import publish, subscribe
from tests.support.many import NUMBERS


@dataclass(frozen=True)
class Sizes:
    """Numbers of messages of each of two topics.

    In offset order, ``done`` of ``messages`` are acknowledged, ``waiting`` wait for a retry, ``LEFT`` are in flight,
    and the rest is new. Besides, ``scheduled`` messages of the first topic are due in some decades.
    """

    messages: int
    done: int
    waiting: int
    scheduled: int


MILLION = Sizes(500_000, 300_000, 40_000, 100_000)
FIFTH = Sizes(100_000, 60_000, 8_000, 20_000)
LEFT = 3
PARTITIONS = 2_500
"""Partitions of each topic."""
CROWD = 20
"""The number of other groups with leases and positions in all these partitions."""
CHUNK = 50_000


def in_chunks(sql: str, params: list[str | int], first: int, count: int) -> None:
    """Run INSERT … SELECT for the numbers or offsets ``first`` to ``first + count``, with one commit per chunk."""
    with connection.cursor() as cursor:
        for start in range(first, first + count, CHUNK):
            cursor.execute(sql, [*params, start, min(start + CHUNK, first + count)])


def fill(topic: str, sizes: Sizes) -> None:
    """Fill one topic with two registered groups. One group is far behind the other."""
    for group in ("ahead", "behind"):
        subscribe(topic, group)
    first = publish(topic, "first", key="k0", id="first").offset
    in_chunks(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at) SELECT %s, CONCAT('k', (x.base + n) MOD %s), CONCAT('id-', x.base + n), '', '1',"
        ' \'{"kind": "", "headers": {}, "encoding": "json"}\', 1, 1, 1'
        f" FROM (SELECT %s AS base, %s AS upto) x, {NUMBERS} WHERE x.base + n < x.upto AND n < {CHUNK} ORDER BY n",
        [topic, PARTITIONS],
        1,
        sizes.messages - 1,
    )
    for group, done in (("ahead", sizes.done), ("behind", 1_000)):
        settled = done + sizes.waiting
        in_chunks(
            "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked,"
            " in_flight, invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to,"
            " delivered_at)"
            " SELECT %s, topic, partition_key, `offset`, `offset` < %s, `offset` >= %s, `offset` MOD 1000, 0, 0,"
            " `offset`, 1, 0, 'w', 1 FROM queue_messages WHERE topic = %s AND `offset` >= %s AND `offset` < %s",
            [group, first + done, first + settled, topic],
            first,
            settled + LEFT,
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO queue_offsets (consumer_group, topic, partition_key, offset_acked, scan_offset, paused,"
                f" updated_at) SELECT %s, %s, CONCAT('k', n), %s, %s, 0, 1 FROM {NUMBERS} WHERE n < %s",
                [group, topic, first + done // 2, first + settled + LEFT - 1, PARTITIONS],
            )
            cursor.execute(
                "INSERT INTO queue_partition_leases (consumer_group, topic, partition_key, leased_by, holder,"
                f" leased_at, lease_renewed_at) SELECT %s, %s, CONCAT('k', n), '', '', 1, 1 FROM {NUMBERS}"
                " WHERE n < %s",
                [group, topic, PARTITIONS],
            )


def crowd() -> None:
    """Insert leases and positions of many other groups. The statements must find their own rows among them."""
    with connection.cursor() as cursor:
        for table, columns, values in (
            (
                "queue_partition_leases",
                "leased_by, holder, leased_at, lease_renewed_at",
                "'w', 'other', 1, 1",
            ),
            ("queue_offsets", "offset_acked, scan_offset, paused, updated_at", "0, 0, 0, 1"),
        ):
            for number in range(CROWD):
                cursor.execute(
                    f"INSERT INTO {table} (consumer_group, topic, partition_key, {columns})"
                    f" SELECT 'crowd-{number}', topic, partition_key, {values} FROM queue_partition_leases"
                    " WHERE consumer_group = 'ahead'"
                )


LETTERS, RARE = 30_000, 20
"""Dead letters of the full topic. One in ``RARE`` belongs to the group ``ahead``."""


def bury() -> None:
    in_chunks(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group, original_id)"
        " SELECT 'full_dlq', CONCAT('k', (x.base + n) MOD %s), CONCAT('letter-', x.base + n), '', '1',"
        ' \'{"kind": "", "headers": {}, "encoding": "json"}\', 1, 1, 1, 1, 3, \'no\', \'full\','
        f" IF(n MOD {RARE} = 0, 'ahead', 'behind'), CONCAT('dead-', x.base + n)"
        f" FROM (SELECT %s AS base, %s AS upto) x, {NUMBERS} WHERE x.base + n < x.upto AND n < {CHUNK} ORDER BY n",
        [PARTITIONS],
        0,
        LETTERS,
    )


def schedule(count: int) -> None:
    in_chunks(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at) SELECT 'full_scheduled', CONCAT('k', (x.base + n) MOD %s),"
        ' CONCAT(\'later-\', x.base + n), \'\', \'1\', \'{"kind": "", "headers": {}, "encoding": "json"}\','
        " 4000000000000 + n, 1, 1"
        f" FROM (SELECT %s AS base, %s AS upto) x, {NUMBERS} WHERE x.base + n < x.upto AND n < {CHUNK} ORDER BY n",
        [PARTITIONS],
        0,
        count,
    )


TABLES = ("queue_messages", "queue_delivery_state", "queue_partition_leases", "queue_offsets")


def fill_all(sizes: Sizes) -> None:
    """Fill two topics, other groups, dead letters and scheduled messages. Then update the servers' statistics."""
    for topic in ("full", "other"):
        fill(topic, sizes)
    crowd()
    bury()
    schedule(sizes.scheduled)
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"ANALYZE TABLE {table}")
            cursor.fetchall()
