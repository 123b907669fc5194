"""The server's execution plans for the most frequent reads of workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import connections

from .. import delivery_state, leases, log, positions
from ..connection import session
from ..connection.dialect import is_mariadb
from ..queries import discovery

_TABLE = re.compile(r"\b(queue_\w+)(?: (?!FORCE\b|WHERE\b|ON\b|JOIN\b)(\w+))? FORCE INDEX \((\w+)\)")


class Access(NamedTuple):
    """The access of a statement to a table. ``named``: the indexes that the statement names; ``used``: '' for none."""

    statement: str
    table: str
    named: tuple[str, ...]
    used: str
    reads_all: bool


def of_reads(using: str, group: str, topic: str, partition: str, lease_ms: int) -> list[Access]:
    """Run the most frequent reads of a worker, and return how the server executes them."""
    reads: dict[str, Callable[[], object]] = {
        "discovery": lambda: discovery.read(using, group, topic, lease_ms),
        "new messages and due messages": lambda: log.tails(using, [(topic, 0)], 10),
        "next messages of a partition": lambda: log.first_rows(using, group, topic, [(partition, 0)], 10),
        "retries of a partition": lambda: delivery_state.waiting(
            using, group, topic, [partition], 10, by_offset=False
        ),
        "deliveries in flight": lambda: delivery_state.in_flight(using, group, topic, [partition]),
        "positions": lambda: positions.positions(using, group, topic, [partition], 0),
        "free leases": lambda: leases.takeable(using, leases.Holder(group, topic, "", ""), lease_ms, 10),
    }
    found = []
    for name, read in reads.items():
        sent: list[tuple[str, Any]] = []

        def note(
            execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any, sent: Any = sent
        ) -> Any:
            sent.append((sql, params))
            return execute(sql, params, many, context)

        with connections[using].execute_wrapper(note):
            read()
        found += [access for sql, params in sent for access in _explained(using, name, sql, params)]
    return found


def _explained(using: str, name: str, sql: str, params: Any) -> list[Access]:
    word = "EXPLAIN" if is_mariadb(using) else "EXPLAIN FORMAT=TRADITIONAL"
    named: dict[str, tuple[str, set[str]]] = {}
    for table, alias, index in _TABLE.findall(sql):
        named.setdefault(alias or table, (table, set()))[1].add(index)
    # Columns: id, select_type, table, (MySQL: partitions,) type, possible_keys, key, …
    first = 3 if is_mariadb(using) else 4
    found = []
    for row in session.fetch(using, f"{word} {sql}", params or ()):
        if row[2] in named:
            table, indexes = named[row[2]]
            found.append(
                Access(name, table, tuple(sorted(indexes)), row[first + 2] or "", row[first] == "ALL")
            )
    return found
