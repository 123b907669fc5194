"""The queue's tables as the server has them: engines, indexes, collations and gate rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections

from ..connection import errors, session


@dataclass(frozen=True)
class Index:
    """An index of a table.

    ``is_visible``: False if MySQL hides the index, or MariaDB ignores it. Statements that name it then fail.
    """

    columns: tuple[str, ...]
    is_unique: bool
    is_visible: bool


def indexes(using: str, table: str) -> dict[str, Index] | None:
    """Return the indexes of a table by name; None if the table does not exist."""
    try:
        rows = _rows(using, f"SHOW INDEX FROM {table}")
    except DatabaseError as error:
        if errors.is_no_table(error):
            return None
        raise
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row["key_name"]), {})[int(row["seq_in_index"])] = row
    return {
        name: Index(
            tuple(str(parts[number]["column_name"]) for number in sorted(parts)),
            not int(parts[1]["non_unique"]),
            parts[1].get("visible", "YES") == "YES" and parts[1].get("ignored", "NO") == "NO",
        )
        for name, parts in found.items()
    }


def engine(using: str, table: str) -> str:
    rows = _rows(using, "SHOW TABLE STATUS LIKE %s", table.replace("_", "\\_"))
    return str(rows[0]["engine"]) if rows else ""


def collations(using: str, table: str) -> dict[str, str]:
    """Return the collations of a table's text columns."""
    rows = _rows(using, f"SHOW FULL COLUMNS FROM {table}")
    return {str(row["field"]): str(row["collation"]) for row in rows if row["collation"]}


def gate_rows(using: str) -> int:
    rows = session.fetch(
        using,
        "SELECT COUNT(*) FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        " WHERE consumer_group = '' AND topic = '' AND partition_key LIKE %s",
        ["gate-%"],
    )
    return int(rows[0][0])


def _rows(using: str, sql: str, *params: str) -> list[dict[str, Any]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params or None)
        names = [str(column[0]).lower() for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
