"""The log, and delivery state, read in bulk: pages of a stretch of offsets, as the bytes that the server sent.

A page is read to its end before it is handed on, so that no statement, and no read view, stays open however slowly
the reader works. There are two ways to read one:

- as a **block**: the server joins all values of the page into a few long ones. That costs it a little more than rows
  do, and the reader a fraction, who need not take each value in hand. For rows that are not large, up to an offset;
- as **rows**, as far as a budget goes: for rows of any size.

In a block each row is a line: its offset, its values, and a 0 (so that no text is at a line's begin or end), with
``BETWEEN`` between them and ``NULL`` for null. A line is made as one value: a server that joins several values of a
row copies each of them once more. Names have no control characters, and JSON has them only where it is laid out in
lines: where there is one after all, lines or their parts are too many, and the page must be read as rows.

*Lumps* may hold any bytes. They stand in the line behind their length, which tells of any that holds what should stand
between values: such a lump is cut short. Then they are read **apart**: the line has the length alone, and they are
joined beside the lines, with nothing between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connections
from MySQLdb import _mysql

from . import session
from .dialect import marks

BETWEEN, NULL = "\x1f", "\x1e"
MOST = 8 * 1_048_576
"""Bytes of each long value of a block. Beyond that, or the server's ``max_allowed_packet``, it is cut off."""

FETCH = 8
"""Rows received between two looks at their size."""


@dataclass(frozen=True)
class Field:
    """How a column is read. ``lump``: it may hold any bytes."""

    sql: str
    nullable: bool = False
    lump: bool = False


MESSAGES: Mapping[str, Field] = {
    "partition": Field("m.partition_key"),
    "offset": Field("m.`offset`"),
    "id": Field("m.id"),
    "target": Field("m.consumer_group"),
    "metadata": Field("m.metadata"),
    "payload": Field("m.payload", lump=True),
    "created_at": Field("m.created_at"),
    "published_at": Field("m.published_at"),
    "original_id": Field("m.original_id", nullable=True),
    "original_topic": Field("m.original_topic", nullable=True),
    "failed_group": Field("m.failed_group", nullable=True),
    "failed_at": Field("m.failed_at", nullable=True),
    "failure_count": Field("m.failure_count", nullable=True),
    "last_error": Field("m.last_error", nullable=True, lump=True),
}
"""What can be read of a message of a topic, by the names that readers use."""

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
    "errors": Field("s.errors", nullable=True, lump=True),
    "published_at": Field("m.published_at"),  # The message's.
}
"""What can be read of a group's delivery state."""


@dataclass(frozen=True)
class Block:
    """``rows``: how many there are; the lines have the offset, then the other columns as they were asked for.

    ``lumps``: all rows' of each column that is one; None: they are in the lines.
    """

    rows: int
    lines: bytes
    lumps: Sequence[bytes] | None

    @property
    def size(self) -> int:
        return len(self.lines) + sum(map(len, self.lumps or ()))


@dataclass(frozen=True)
class Pages:
    """Of a topic: of messages (``targets``: only those for these groups, '' for all; None: every one), or of what a
    ``group`` has done with them (without those that it was never given). ``columns``: names of the fields.

    ``dense``: most rows of the whole log between the offsets are the topic's, and are read as they lie.
    """

    topic: str
    columns: Sequence[str]
    targets: Sequence[str] | None = None
    group: str | None = None
    dense: bool = False

    def block(self, using: str, above: int, upto: int, *, apart: bool = False) -> Block:
        """All rows between two offsets, in whatever order; cut off where they are too long."""
        fields = [self._field(name) for name in self.columns if name != "offset"]
        parts = ["m.`offset`", *(part for field in fields for part in _line_parts(field, apart)), "0"]
        line = f"CONCAT_WS({_literal(BETWEEN)}, {', '.join(parts)})"
        lumps = [field.sql for field in fields if field.lump and apart]
        wanted = ", ".join(["COUNT(*)", _joined(line, "0x0a"), *(_joined(lump, "''") for lump in lumps)])
        from_, params = self._from(above, upto)
        _prepare(using)
        ((rows, found, *joined),) = session.fetch(using, f"SELECT {wanted} {from_}", params)
        return Block(int(rows), found or b"", [lump or b"" for lump in joined] if apart else None)

    def rows(
        self, using: str, above: int, upto: int, limit: int, budget: int
    ) -> tuple[list[tuple[bytes | None, ...]], int]:
        """The next rows by offset, the offset first and then the columns; and their size in bytes.

        At most ``limit`` rows, and no more than about ``budget`` bytes.
        """
        wanted = ", ".join(["m.`offset`", *(self._field(name).sql for name in self.columns)])
        from_, params = self._from(above, upto)
        sql = f"SELECT {wanted} {from_} ORDER BY m.`offset` LIMIT {limit:d}"
        connection = connections[using]
        connection.ensure_connection()
        rows: list[tuple[bytes | None, ...]] = []
        size = 0
        with connection.wrap_database_errors:
            raw = connection.connection
            raw.query(raw.cursor().mogrify(sql, params).encode())
            result = _mysql.result(raw, 1, {})  # Received as it is asked for; nothing is converted.
            while some := result.fetch_row(FETCH, 0):
                rows += some
                size += sum(len(value) for row in some for value in row if value is not None)
                if size > budget:
                    # What is left unread would have to be received first: a new connection is cheaper.
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
                " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s"
                " AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
                f" {where}",
                [self.group, self.topic, above, upto],
            )
        index = "PRIMARY" if self.dense else "queue_messages_tail"
        return (
            f"FROM queue_messages m FORCE INDEX ({index}) {where}{only(self.targets)}",
            [self.topic, above, upto, *(self.targets or ())],
        )


_prepared: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The server's connections that may make long values, and how long."""


def _prepare(using: str) -> None:
    """Let the connection read blocks, unless it can: it may be another one than that of the page before."""
    connection = connections[using]
    connection.ensure_connection()
    if _prepared.get(connection.connection) != MOST:
        session.execute(using, f"SET SESSION group_concat_max_len = {MOST:d}")
        _prepared[connection.connection] = MOST


def _line_parts(field: Field, apart: bool) -> list[str]:
    value = f"LENGTH({field.sql})" if field.lump else field.sql
    parts = [f"IFNULL({value}, {_literal(NULL)})" if field.nullable else value]
    if field.lump and not apart:
        parts.append(f"IFNULL({field.sql}, '')" if field.nullable else field.sql)
    return parts


def _joined(values: str, between: str) -> str:
    """Of all rows, as bytes."""
    return f"CAST(GROUP_CONCAT({values} SEPARATOR {between}) AS BINARY)"


def _literal(text: str) -> str:
    return f"0x{text.encode().hex()}"


def only(targets: Sequence[str] | None) -> str:
    """Only rows for these groups ('': for all); None: every row."""
    return "" if targets is None else f" AND m.consumer_group IN ({marks(targets)})"
