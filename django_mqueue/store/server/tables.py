"""The queue's tables as the server has them: engines, indexes, collations, gate rows, and the account's privileges.

Privileges are found by asking the server to explain statements that need them. This also counts privileges of roles,
patterns and revokes. SHOW GRANTS would show password hashes on MariaDB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections

from ..connection import errors, session

_STATEMENTS = {
    "SELECT": "SELECT 1 FROM {} WHERE 1 = 0",
    "INSERT": "INSERT INTO {} () VALUES ()",
    "UPDATE": "UPDATE {} SET {} = {} WHERE 1 = 0",
    "DELETE": "DELETE FROM {} WHERE 1 = 0",
}
_LOOKS = {
    "PROCESS": "SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1",
    "performance_schema": "SELECT 1 FROM performance_schema.threads LIMIT 1",
}


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


def missing_privileges(using: str, needed: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the privileges that the account lacks, by table.

    ``needed``: privileges by table, for example ``UPDATE``.
    """
    found = {table: [one for one in some if _lacks(using, table, one)] for table, some in needed.items()}
    return {table: some for table, some in found.items() if some}


def _lacks(using: str, table: str, privilege: str) -> bool:
    return _is_denied(using, "EXPLAIN " + _STATEMENTS[privilege].format(table, "topic", "topic"))


def can_look(using: str) -> dict[str, bool]:
    """Return whether the account has PROCESS, and may read the performance schema."""
    return {name: not _is_denied(using, sql) for name, sql in _LOOKS.items()}


def _is_denied(using: str, sql: str) -> bool:
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(sql)
            cursor.fetchall()
    except DatabaseError as error:
        if not errors.is_denied(error) and not errors.is_read_only(error):
            raise
        return errors.is_denied(error)
    return False
