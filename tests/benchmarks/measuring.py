"""Measure the statements, the rows read and the SQL time of a page of the admin."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.test import Client

from tests.benchmarks.views import View
from tests.support.statements import counted, rows_read


@dataclass(frozen=True)
class Statement:
    """``rows``: rows that the storage engine returned, or None if the statement was not measured separately."""

    sql: str
    ms: float
    rows: int | None = None


@dataclass(frozen=True)
class Measured:
    """``first``: milliseconds of SQL of the first request. ``ms``: the median of all requests."""

    statements: list[Statement]
    rows: int
    first: float
    ms: float
    status: int

    @property
    def slowest(self) -> Statement:
        return max(self.statements, key=lambda one: one.ms)


def measure(client: Client, view: View, times: int = 5) -> Measured:
    """Request a page several times, each time with an empty Django cache."""
    costs = [_ask(client, view) for _ in range(times)]
    spent = [sum(one.ms for one in statements) for statements, _, _ in costs]
    statements, rows, status = costs[-1]
    return Measured(statements, rows, spent[0], statistics.median(spent), status)


def _ask(client: Client, view: View) -> tuple[list[Statement], int, int]:
    cache.clear()
    connection.queries_log.clear()  # Its length is limited.
    statements: list[Statement] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        begun = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            statements.append(Statement(sql, (time.perf_counter() - begun) * 1000))

    with counted() as cost, connection.execute_wrapper(note):
        response = ask(client, view)
    return statements, cost.rows, response.status_code


def ask(client: Client, view: View) -> Any:
    return client.get(view.url, view.query) if view.data is None else client.post(view.url, view.data)


def taken_apart(client: Client, view: View) -> list[Statement]:
    """Return the statements of a page with their values, and the rows that each statement reads."""
    cache.clear()
    statements: list[Statement] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SHOW SESSION STATUS"):
            return execute(sql, params, many, context)
        first = rows_read()
        before = rows_read()
        begun = time.perf_counter()
        result = execute(sql, params, many, context)
        ms = (time.perf_counter() - begun) * 1000
        rows = rows_read() - before - (before - first)
        statements.append(Statement(_filled_in(sql, params), ms, rows))
        return result

    with connection.execute_wrapper(note):
        ask(client, view)
    return statements


def _filled_in(sql: str, params: Any) -> str:
    if not params:
        return sql
    texts = [str(int(value)) if isinstance(value, int) else repr(value) for value in params]
    return sql % tuple(texts)
