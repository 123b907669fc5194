"""The server's query plans for statements that tests execute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection

from .statements import rows_read


@dataclass(frozen=True)
class Access:
    """One table's line of a plan."""

    table: str
    type: str
    key: str
    rows: int
    extra: str


@dataclass(frozen=True)
class Plan:
    """``read`` is the number of rows that the storage engine returned during the execution."""

    sql: str
    accesses: tuple[Access, ...]
    read: int = 0

    def __str__(self) -> str:
        lines = "\n".join(f"  {access}" for access in self.accesses)
        return f"{self.sql[:600]}\n{lines}\n  {self.read} rows read"

    def of(self, alias: str) -> list[Access]:
        return [access for access in self.accesses if access.table == alias]


@contextmanager
def planned() -> Iterator[dict[str, Plan]]:
    """Yield the plans of this thread's statements by their shapes. Each is made just before its statement.

    Of the statements of one shape, the statement with the most parameters counts.
    """
    plans: dict[str, Plan] = {}
    most: dict[str, int] = {}

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip("( ").startswith(("SELECT", "UPDATE", "DELETE", "INSERT")):
            form = shape(sql)
            if len(params or ()) > most.get(form, -1):
                most[form] = len(params or ())
                plan = _explain(sql, params)
                first, before = rows_read(), rows_read()
                result = execute(sql, params, many, context)
                plans[form] = replace(plan, read=rows_read() - before - (before - first))
                return result
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield plans


def shape(sql: str) -> str:
    """Return the statement without its repeated values and branches."""
    sql = re.sub(r"%s(, %s)+", "%s…", sql)
    sql = re.sub(r"\((?:SELECT [^()]*|[^()]*)\)( UNION ALL \(|$).*", "", sql) if sql.startswith("((") else sql
    head, *_ = sql.split(" UNION ALL ")
    return re.sub(r"(\(\(?partition_key = %s[^)]*\))( OR \(partition_key = %s[^)]*\))+", r"\1 OR …", head)


def _explain(sql: str, params: Any) -> Plan:
    words = "EXPLAIN" if connection.mysql_is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"  # type: ignore[attr-defined]
    cursor = connection.connection.cursor()  # a separate cursor, so no wrapper of Django sees the EXPLAIN
    cursor.execute(f"{words} {sql}", params)
    names = [column[0] for column in cursor.description]
    lines = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    cursor.close()
    return Plan(
        sql,
        tuple(
            Access(
                str(line["table"] or ""), str(line["type"] or ""), str(line["key"] or ""),
                int(line["rows"] or 0), str(line["Extra"] or ""),
            )
            for line in lines
        ),
    )  # fmt: skip
