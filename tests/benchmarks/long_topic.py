"""One topic with any number of messages, inserted by set-based statements. A row has about 300 bytes."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection

from tests.support.many import NUMBERS

TOPIC = "orders"
CHUNK = 100_000
ID = "01977420-c2f4-7000-8000-"
FIRST_AT = 1_760_000_000_000
"""Epoch milliseconds of the first message; the others follow a millisecond apart."""

KINDS = ("order.placed", "order.paid", "order.sent", "order.cancelled")
PAYLOAD = (
    "CONCAT('{\"order\":', x.n, ',\"customer\":', x.n MOD 5000, ',\"total\":', x.n * 7919 MOD 100000,"
    ' \',"digest":"\', SHA2(x.n, 256), \'","note":"as agreed"}\')'
)
KIND = f"ELT(1 + x.n MOD {len(KINDS)}, {', '.join(map(repr, KINDS))})"
TRACE = """, "trace": "', MD5(x.n), '\""""


def fill(rows: int, tell: Callable[[str], None] = lambda text: None, *, traced: bool = False) -> None:
    """Add rows until the log has ``rows`` of them. With ``traced``, no two rows have the same headers."""
    metadata = (
        f"""CONCAT('{{"kind": "', {KIND}, '", "headers": {{"source": "web"{TRACE if traced else ""}}},"""
        """ "encoding": "json"}')"""
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM queue_messages")
        (there,) = cursor.fetchone()
        for base in range(int(there), rows, CHUNK):
            cursor.execute(
                "INSERT INTO queue_messages (`offset`, topic, partition_key, id, consumer_group, payload, metadata,"
                " available_at, created_at, published_at)"
                f" SELECT x.n + 1, '{TOPIC}', CONCAT('customer-', LPAD(x.n * 2654435761 MOD 5000, 5, '0')),"
                f" CONCAT('{ID}', LPAD(x.n, 12, '0')), '', {PAYLOAD}, {metadata},"
                f" x.at, x.at, x.at FROM (SELECT {base} + n AS n, {FIRST_AT} + {base} + n AS at FROM {NUMBERS}"
                f" WHERE n < {min(CHUNK, rows - base)}) x ORDER BY x.n"
            )
            if base % 1_000_000 == 0:
                tell(f"{base + min(CHUNK, rows - base):,} of {rows:,} rows")
        cursor.execute("ANALYZE TABLE queue_messages")
        cursor.fetchall()


def row_bytes() -> int:
    """Return the mean number of bytes in a row of the log."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT AVG(LENGTH(topic) + LENGTH(partition_key) + LENGTH(id) + LENGTH(payload) + LENGTH(metadata) + 32)"
            " FROM queue_messages WHERE `offset` <= 10000"
        )
        return int(cursor.fetchone()[0])
