"""Migrations change large tables in place, while others publish: the server copies no table and locks none."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, OperationalError, connections
from django.db.migrations.loader import MigrationLoader
from django.test import override_settings

from django_mqueue import publish
from django_mqueue.models import Message
from tests.support.many import NUMBERS
from tests.support.transactions import Background, HeldTransaction

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("only_the_first_migration"),
    pytest.mark.timeout(600),
]

USING = "other"
APPS = ["django_mqueue", "mqueue_worklists"]
LARGE = ("queue_messages", "queue_delivery_state")
"""The tables that grow with the number of messages."""
ROWS = 300_000
INSTANT, IN_PLACE = ", ALGORITHM=INSTANT", ", ALGORITHM=INPLACE, LOCK=NONE"
CHANGE = re.compile(r"(ALTER TABLE|CREATE (?:UNIQUE )?INDEX|DROP INDEX)\b")
AS_ALTER = [
    (re.compile(r"CREATE (UNIQUE )?INDEX (\S+) ON (\S+)"), r"ALTER TABLE \3 ADD \1INDEX \2"),
    (re.compile(r"DROP INDEX (\S+) ON (\S+)"), r"ALTER TABLE \2 DROP INDEX \1"),
]
"""MariaDB takes the clauses in ALTER TABLE only. The other statements are short for it."""
WRITE = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE)\b")
ALGORITHMS = {
    "0002_scheduled_messages": [IN_PLACE, IN_PLACE],  # It drops an index and adds one.
    "0006_session_locks": [INSTANT],
    "0007_results": [INSTANT],
    "0010_lease_indexes": [IN_PLACE],
}
"""How each change of a table is made. Add a migration that changes one: INSTANT, or IN_PLACE for an index."""


def execute(sql: str, *params: Any) -> None:
    with connections[USING].cursor() as cursor:
        cursor.execute(sql, params)


def later_migrations() -> list[tuple[str, str]]:
    """Return the migrations of the package's apps after the first one of each app, in order."""
    loader = MigrationLoader(None)
    return [key for key in sorted(loader.disk_migrations) if key[0] in APPS and not key[1].startswith("0001")]


@pytest.fixture
def only_the_first_migration() -> Iterator[None]:
    """Create the tables of 0001. It inserts today's rows of the gates, so that publishers can work from the start."""
    for name in ("zero", "0001"):
        call_command("migrate", "django_mqueue", name, database=USING, verbosity=0)
    with override_settings(MQUEUE={"WAKE_WORKERS": "never"}):
        yield
    call_command("migrate", database=USING, verbosity=0)


def fill() -> None:
    """Insert ``ROWS`` messages, each with the state of one group."""
    for start in range(0, ROWS, 100_000):
        execute(
            "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
            " created_at, published_at) SELECT 'orders', CONCAT('k', n MOD 100), CONCAT('id-', n + %s), '', '1',"
            ' \'{"kind": "", "headers": {}, "encoding": "json"}\', 1, 1, 1'
            f" FROM {NUMBERS} ORDER BY n",
            start,
        )
    execute(
        "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
        " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at)"
        " SELECT 'billing', topic, partition_key, `offset`, 1, 0, 0, 0, 0, 1, 1, 0, 'w', 1 FROM queue_messages"
    )


class Online:
    """Executes each change of a table with a clause that the server refuses if it must copy or lock the table."""

    def __init__(self) -> None:
        self.algorithms: list[str] = []
        self.times: list[tuple[float, float]] = []
        self.writes: list[str] = []

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if WRITE.match(sql) and any(table in sql for table in LARGE):
            self.writes.append(sql)
        if not CHANGE.match(sql):
            return execute(sql, params, many, context)
        begun = time.monotonic()
        try:
            result = self._change(execute, sql, INSTANT, params, many, context)
        except DatabaseError:
            result = self._change(execute, sql, IN_PLACE, params, many, context)
        self.times.append((begun, time.monotonic()))
        return result

    def _change(
        self, execute: Callable[..., Any], sql: str, clause: str, params: Any, many: bool, context: Any
    ) -> Any:
        for pattern, replacement in AS_ALTER:
            sql = pattern.sub(replacement, sql)
        result = execute(sql + clause, params, many, context)
        self.algorithms.append(clause)
        return result


class Publisher:
    """Publishes one message after another, and notes when each publish began and ended."""

    def __init__(self) -> None:
        self.stopping, self.times = threading.Event(), list[tuple[float, float]]()

    def run(self) -> None:
        while not self.stopping.is_set():
            begun = time.monotonic()
            publish("orders", 1, using=USING)
            self.times.append((begun, time.monotonic()))


def test_each_migration_changes_large_tables_in_place_while_others_publish() -> None:
    """Each later migration of each app runs. During the longest change, a publish begins and commits."""
    fill()
    found: dict[str, list[str]] = {}
    publisher, times = Publisher(), list[tuple[float, float]]()
    with Background(publisher.run, using=USING):
        try:
            for app, name in later_migrations():
                online = Online()
                with connections[USING].execute_wrapper(online):
                    call_command("migrate", app, name, database=USING, verbosity=0)
                assert online.writes == [], f"{name} writes rows of a large table"
                found |= {name: online.algorithms} if online.algorithms else {}
                times += online.times
        finally:
            publisher.stopping.set()
    assert found == ALGORITHMS
    begun, ended = max(times, key=lambda one: one[1] - one[0])
    assert any(begun < first and last < ended for first, last in publisher.times), "all publishers waited"
    assert Message.objects.using(USING).count() == ROWS + len(publisher.times)


def test_a_migration_that_copies_a_table_would_be_found() -> None:
    """The server refuses a change of a column's type with both clauses."""
    online = Online()
    with connections[USING].execute_wrapper(online), pytest.raises(DatabaseError, match="ALGORITHM"):
        execute("ALTER TABLE queue_messages MODIFY available_at varchar(20) NOT NULL")
    assert online.algorithms == []
    with connections[USING].execute_wrapper(online):
        execute("UPDATE queue_messages SET available_at = 2")
    assert len(online.writes) == 1


def test_a_migration_that_waits_for_a_transaction_gives_up_and_can_run_again() -> None:
    """A change waits for open transactions that used the table, and later publishers wait for the change.

    With a short ``lock_wait_timeout``, the migration fails instead. It changes nothing, and the publishers continue.
    """
    execute("SET SESSION lock_wait_timeout = 1")
    with HeldTransaction(lambda: publish("orders", "held", using=USING), using=USING) as held:
        with pytest.raises(OperationalError, match="Lock wait timeout"):
            call_command("migrate", "django_mqueue", "0002", database=USING, verbosity=0)
        assert publish("orders", "next", using=USING).created
        held.commit()
    call_command("migrate", "django_mqueue", "0002", database=USING, verbosity=0)
    execute("SET SESSION lock_wait_timeout = DEFAULT")
