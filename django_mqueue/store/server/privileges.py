"""The privileges of the present account, found by asking the server to explain statements that need them.

This also counts privileges of roles, patterns and revokes. SHOW GRANTS would show password hashes on MariaDB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import DatabaseError, connections

from ..connection import errors

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


def missing(using: str, needed: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
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
