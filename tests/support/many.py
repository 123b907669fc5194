"""Insert many rows with a few statements, for tests of the cost of large tables."""

from __future__ import annotations

from django.db import connection

DIGITS = "(SELECT 0 AS d UNION ALL " + " UNION ALL ".join(f"SELECT {d}" for d in range(1, 10)) + ")"
NUMBERS = (
    "(SELECT a.d * 10000 + b.d * 1000 + c.d * 100 + e.d * 10 + f.d AS n FROM"
    f" {DIGITS} a, {DIGITS} b, {DIGITS} c, {DIGITS} e, {DIGITS} f) numbers"
)
"""A derived table of the numbers below 100,000."""
CHUNK = 10_000
"""The number of rows in one INSERT."""


def insert_messages(topic: str, count: int, keys: int, *, published_at: str = "1") -> int:
    """Insert up to 100,000 messages with ``keys`` different keys, and return the first offset.

    ``published_at`` is an SQL expression of ``n``, the number of the message.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
            " created_at, published_at) SELECT %s, CONCAT('k', n MOD %s), CONCAT('id-', n), '', '1',"
            f' \'{{"kind": "", "headers": {{}}, "encoding": "json"}}\', 1, 1, {published_at}'
            f" FROM {NUMBERS} WHERE n < %s ORDER BY n",
            [topic, keys, count],
        )
        cursor.execute("SELECT MIN(`offset`) FROM queue_messages WHERE topic = %s", [topic])
        return int(cursor.fetchone()[0])


def insert_dead_letters(topic: str, group: str, count: int) -> None:
    """Insert up to 100,000 dead letters, as the queue writes them."""
    with connection.cursor() as cursor:
        for start in range(0, count, CHUNK):
            cursor.execute(
                "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
                " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group,"
                f" original_id) SELECT %s, CONCAT('k', n MOD 10), CONCAT(n, ':', %s), '',"
                " CONCAT('{\"pad\": \"', REPEAT('x', 200), '\"}'),"
                ' \'{"kind": "", "headers": {}, "encoding": "json"}\', 1, 1, 1, 1, 3, \'ValueError: no\','
                f" %s, %s, n FROM {NUMBERS} WHERE n >= %s AND n < %s ORDER BY n",
                [f"{topic}_dlq", group, topic, group, start, min(start + CHUNK, count)],
            )
