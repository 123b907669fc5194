"""Read the log or delivery state in bulk: pages of an offset range, as the bytes that the server sent.

A page is read completely before it is returned. So no statement and no read view stays open while the reader is slow.
There are two ways to read a page:

- As a **block**, up to an offset. The server joins all values of the page into a few long values. This costs the
  server slightly more than rows, but the reader much less. It is for rows that are not large.
- As **rows**, up to a budget in bytes. It is for rows of any size.

In a block each row is a line: its offset, its values, and a 0, so that no line begins or ends with a text.
``BETWEEN`` separates the values, and ``NULL`` replaces null. Names contain no control characters. JSON contains them
only if it is formatted in several lines. Then there are too many lines or values, and the page must be read as rows.

*Binary* values may hold any bytes. In a line, each binary value follows its length. If a binary value contains a
separator, the reader finds a value that is shorter than its length. Then the page is read with **separate** binary
values: the lines have only the lengths, and the binary values of each column are joined in one value, without
separators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connections
from MySQLdb import _mysql

from ...store.connection import session
from ...store.connection.dialect import STATE_OF_MESSAGE, placeholders

BETWEEN, NULL = "\x1f", "\x1e"
MOST = 8 * 1_048_576
"""Maximum bytes of each long value of a block. The server cuts off what exceeds this or its ``max_allowed_packet``."""

FETCH = 8
"""The number of rows received at a time, between two checks of their size."""


@dataclass(frozen=True)
class Field:
    """A column to read. ``binary``: it may hold any bytes."""

    sql: str
    nullable: bool = False
    binary: bool = False


MESSAGES: Mapping[str, Field] = {
    "partition": Field("m.partition_key"),
    "offset": Field("m.`offset`"),
    "id": Field("m.id"),
    "target": Field("m.consumer_group"),
    "metadata": Field("m.metadata"),
    "payload": Field("m.payload", binary=True),
    "created_at": Field("m.created_at"),
    "published_at": Field("m.published_at"),
    "original_id": Field("m.original_id", nullable=True),
    "original_topic": Field("m.original_topic", nullable=True),
    "failed_group": Field("m.failed_group", nullable=True),
    "failed_at": Field("m.failed_at", nullable=True),
    "failure_count": Field("m.failure_count", nullable=True),
    "last_error": Field("m.last_error", nullable=True, binary=True),
}
"""The readable columns of a topic's messages, by the names that readers use."""

DELIVERIES: Mapping[str, Field] = {
    "partition": Field("s.partition_key"),
    "offset": Field("s.message_offset"),
    "done": Field("s.acked"),
    "in_flight": Field("s.in_flight"),
    "redeliveries": Field("s.retry_count"),
    "failure_count": Field("s.failure_count"),
    "delivered_to": Field("s.delivered_to"),
    "delivered_at": Field("s.delivered_at"),
    "done_at": Field("s.acked_at", nullable=True),
    "due_at": Field("s.invisible_until"),
    "errors": Field("s.errors", nullable=True, binary=True),
    "published_at": Field("m.published_at"),  # From the message.
}
"""The readable columns of a group's delivery state."""


@dataclass(frozen=True)
class Block:
    """A page, read as a block.

    ``rows``: the number of rows. ``lines``: for each row the offset, then the other columns in the requested order.
    ``binaries``: for each binary column the joined values of all rows; None if they are in the lines.
    """

    rows: int
    lines: bytes
    binaries: Sequence[bytes] | None

    @property
    def size(self) -> int:
        return len(self.lines) + sum(map(len, self.binaries or ()))


@dataclass(frozen=True)
class Pages:
    """A topic's messages, or the delivery state of a ``group`` for them, to be read by pages.

    ``columns``: names of the fields. ``targets``: read only messages for these groups ('' for all groups); None reads
    every message. With a ``group``, messages that were never delivered to it are left out. ``dense``: read by the
    primary key, because the topic has most of the log's rows in the range.
    """

    topic: str
    columns: Sequence[str]
    targets: Sequence[str] | None = None
    group: str | None = None
    dense: bool = False

    def block(self, using: str, above: int, upto: int, *, separate: bool = False) -> Block:
        """Return all rows of an offset range, in any order. Values that are too long are cut off."""
        fields = [self._field(name) for name in self.columns if name != "offset"]
        parts = ["m.`offset`", *(part for field in fields for part in _line_parts(field, separate)), "0"]
        line = f"CONCAT_WS({_literal(BETWEEN)}, {', '.join(parts)})"
        binaries = [field.sql for field in fields if field.binary and separate]
        columns = ", ".join(
            ["COUNT(*)", _joined(line, "0x0a"), *(_joined(binary, "''") for binary in binaries)]
        )
        from_, params = self._from(above, upto)
        _prepare(using)
        ((rows, found, *joined),) = session.fetch(using, f"SELECT {columns} {from_}", params)
        return Block(int(rows), found or b"", [binary or b"" for binary in joined] if separate else None)

    def rows(
        self, using: str, above: int, upto: int, limit: int, budget: int
    ) -> tuple[list[tuple[bytes | None, ...]], int]:
        """Return the next rows in offset order, each with the offset first, and their size in bytes.

        Returns at most ``limit`` rows, and stops soon after ``budget`` bytes.
        """
        columns = ", ".join(["m.`offset`", *(self._field(name).sql for name in self.columns)])
        from_, params = self._from(above, upto)
        sql = f"SELECT {columns} {from_} ORDER BY m.`offset` LIMIT {limit:d}"
        connection = connections[using]
        connection.ensure_connection()
        rows: list[tuple[bytes | None, ...]] = []
        size = 0
        with connection.wrap_database_errors:
            raw = connection.connection
            raw.query(raw.cursor().mogrify(sql, params).encode())
            result = _mysql.result(raw, 1, {})  # Unbuffered; no value is converted.
            while some := result.fetch_row(FETCH, 0):
                rows += some
                size += sum(len(value) for row in some for value in row if value is not None)
                if size > budget:
                    # To reuse this connection, the client must receive the remaining rows. A new one is cheaper.
                    connection.close()
                    break
        return rows, size

    def _field(self, name: str) -> Field:
        return (MESSAGES if self.group is None else DELIVERIES)[name]

    def _from(self, above: int, upto: int) -> tuple[str, list[Any]]:
        where = "WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s"
        if self.group is not None:
            return (
                "FROM queue_messages m FORCE INDEX (queue_messages_tail)"
                f" STRAIGHT_JOIN {STATE_OF_MESSAGE} {where}",
                [self.group, self.topic, above, upto],
            )
        index = "PRIMARY" if self.dense else "queue_messages_tail"
        return (
            f"FROM queue_messages m FORCE INDEX ({index}) {where}{targets_condition(self.targets)}",
            [self.topic, above, upto, *(self.targets or ())],
        )


_prepared: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The server connections with a raised ``group_concat_max_len``, and its value."""


def _prepare(using: str) -> None:
    """Raise ``group_concat_max_len``, once for each connection to the server."""
    connection = connections[using]
    connection.ensure_connection()
    if _prepared.get(connection.connection) != MOST:
        statement = f"SET SESSION group_concat_max_len = {MOST:d}"
        session.run_statement(using, lambda cursor: cursor.execute(statement))
        _prepared[connection.connection] = MOST


def _line_parts(field: Field, separate: bool) -> list[str]:
    value = f"LENGTH({field.sql})" if field.binary else field.sql
    parts = [f"IFNULL({value}, {_literal(NULL)})" if field.nullable else value]
    if field.binary and not separate:
        parts.append(f"IFNULL({field.sql}, '')" if field.nullable else field.sql)
    return parts


def _joined(values: str, between: str) -> str:
    """Return the SQL that joins the values of all rows, as bytes."""
    return f"CAST(GROUP_CONCAT({values} SEPARATOR {between}) AS BINARY)"


def _literal(text: str) -> str:
    return f"0x{text.encode().hex()}"


def targets_condition(targets: Sequence[str] | None) -> str:
    """Return a condition for rows with these target groups ('' for all groups); an empty one for None."""
    return "" if targets is None else f" AND m.consumer_group IN ({placeholders(targets)})"
