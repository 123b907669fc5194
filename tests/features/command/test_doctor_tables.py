"""``manage.py mqueue doctor`` with damaged tables: the report names the damage, and its repair repairs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import CommandError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import DjangoDbBlocker

from django_mqueue.management.commands import runconsumer
from tests.own_server import OwnServer, own_server_of_kind
from tests.servers import kind_of_run
from tests.support.running import registered, run
from tests.support.threads import Background, raw_connection

from .conftest import Run
from .test_doctor import MARIADB, Failing, Json, about, the


@pytest.fixture(scope="module")
def own(django_db_blocker: DjangoDbBlocker) -> Iterator[OwnServer]:
    """A server whose tables these tests change."""
    with django_db_blocker.unblock(), own_server_of_kind(kind_of_run(), "doctored") as server:
        yield server


def repaired(alias: str, statements: str) -> None:
    """Run a repair, as an operator pastes it."""
    with connections[alias].cursor() as cursor:
        for statement in filter(None, map(str.strip, statements.split(";"))):
            cursor.execute(statement)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            "ALTER TABLE queue_messages DROP INDEX queue_messages_tail",
            "the index queue_messages_tail of queue_messages is missing",
        ),
        ("ALTER TABLE queue_partition_leases DROP INDEX queue_leases_partition", "is missing"),
        (
            "ALTER TABLE queue_messages DROP INDEX queue_messages_due, ADD INDEX queue_messages_due (topic)",
            "is not unique and has the columns topic; in the model, it is not unique and has the columns topic, f",
        ),
        (
            "ALTER TABLE queue_offsets ALTER INDEX queue_offsets_groups "
            + ("IGNORED" if MARIADB else "INVISIBLE"),
            "is hidden",
        ),
    ],
)  # fmt: skip
def test_an_index_that_differs_from_the_model(
    own: OwnServer, change: str, text: str, failing: Failing, mqueue_json: Json
) -> None:
    """The repair in the report repairs it."""
    with connections[own.alias].cursor() as cursor:
        cursor.execute(change)
    found = the(failing("doctor", "--database", own.alias)[0], "indexes")
    assert text in found["what"]
    repaired(own.alias, found["repair"])
    assert about(mqueue_json("doctor", "--database", own.alias), "indexes") == []


def test_a_collation_that_ignores_case(own: OwnServer, failing: Failing, mqueue_json: Json) -> None:
    with connections[own.alias].cursor() as cursor:
        cursor.execute(
            "ALTER TABLE queue_partition_leases MODIFY topic VARCHAR(128)"
            " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
        )
    found = the(failing("doctor", "--database", own.alias)[0], "collations")
    assert found["what"] == "the collation of queue_partition_leases.topic is utf8mb4_general_ci"
    repaired(own.alias, found["repair"])
    assert about(mqueue_json("doctor", "--database", own.alias), "collations") == []


def test_the_repair_of_a_collation_keeps_the_default(
    own: OwnServer, failing: Failing, mqueue_json: Json
) -> None:
    """A statement that leaves out the column would fail otherwise."""
    with connections[own.alias].cursor() as cursor:
        cursor.execute(
            "ALTER TABLE queue_subscriber_heartbeats MODIFY session_lock VARCHAR(64)"
            " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL DEFAULT ''"
        )
    repaired(own.alias, the(failing("doctor", "--database", own.alias)[0], "collations")["repair"])
    assert about(mqueue_json("doctor", "--database", own.alias), "collations") == []
    with connections[own.alias].cursor() as cursor:
        cursor.execute("SHOW COLUMNS FROM queue_subscriber_heartbeats LIKE 'session_lock'")
        assert cursor.fetchone()[4] in ("", "''")


def test_an_engine_without_transactions(own: OwnServer, failing: Failing, mqueue_json: Json) -> None:
    with connections[own.alias].cursor() as cursor:
        cursor.execute("ALTER TABLE queue_subscriber_heartbeats ENGINE = MEMORY")
    found = the(failing("doctor", "--database", own.alias)[0], "tables")
    assert found["what"] == "the engine of queue_subscriber_heartbeats is MEMORY"
    repaired(own.alias, found["repair"])
    assert about(mqueue_json("doctor", "--database", own.alias), "tables") == []


def test_migrations_that_are_not_applied(own: OwnServer, failing: Failing, mqueue_json: Json) -> None:
    recorder = MigrationRecorder(connections[own.alias])
    newest = max(name for app, name in recorder.applied_migrations() if app == "django_mqueue")
    recorder.record_unapplied("django_mqueue", newest)
    try:
        found = the(failing("doctor", "--database", own.alias)[0], "migrations")
    finally:
        recorder.record_applied("django_mqueue", newest)
    assert found["what"] == f"migrations are not applied: django_mqueue.{newest}"
    assert found["repair"] == "manage.py migrate --database doctored"
    assert about(mqueue_json("doctor", "--database", own.alias), "migrations") == []


def test_a_table_that_is_missing(own: OwnServer, failing: Failing) -> None:
    with connections[own.alias].cursor() as cursor:
        cursor.execute("RENAME TABLE queue_partition_leases TO renamed")
        document, _ = failing("doctor", "--database", own.alias)
        cursor.execute("RENAME TABLE renamed TO queue_partition_leases")
    (found,) = [one for one in about(document, "privileges") if one["severity"] == "error"]
    assert "tables in database 'doctored' are missing" in found["what"]
    assert found["repair"].startswith("manage.py migrate")


def test_a_database_without_tables(own: OwnServer, failing: Failing) -> None:
    names = ("django_migrations", "queue_messages")
    with connections[own.alias].cursor() as cursor:
        cursor.execute("RENAME TABLE " + ", ".join(f"{name} TO away_{name}" for name in names))
        try:
            document, _ = failing("doctor", "--database", own.alias)
        finally:
            cursor.execute("RENAME TABLE " + ", ".join(f"away_{name} TO {name}" for name in names))
    assert the(document, "migrations")["repair"] == "manage.py migrate --database doctored"
    assert not [one for one in document["findings"] if "failed" in one["what"]]


def test_a_read_only_server(own: OwnServer, failing: Failing) -> None:
    with connections[own.alias].cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
        try:
            found = the(failing("doctor", "--database", own.alias)[0], "server")
        finally:
            cursor.execute("SET GLOBAL read_only = 0")
    assert "the server does not accept writes (read_only is ON)" in found["what"]


def test_a_worker_waits_some_seconds_for_the_end_of_a_failover(
    own: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it gives up, because the server is probably a replica."""
    set_read_only = "SET GLOBAL read_only = {}"
    worker = Background(lambda: run(database=own.alias), using=own.alias)
    with raw_connection(own.alias) as root, registered("refunds", lambda message: None):
        root.execute(set_read_only.format(1))
        try:
            monkeypatch.setattr(runconsumer, "MISTAKEN_AFTER", 0)
            with pytest.raises(CommandError, match="E008"):
                run(database=own.alias)
            monkeypatch.setattr(runconsumer, "MISTAKEN_AFTER", 600)
            with worker:
                assert worker.keeps_trying("SHOW VARIABLES")
                root.execute(set_read_only.format(0))
                assert "stopped" in worker.result()
        finally:
            root.execute(set_read_only.format(0))


def test_a_table_that_is_locked_does_not_stop_the_doctor(own: OwnServer, failing: Failing) -> None:
    """By default, even a SELECT waits for days for a table that another session has locked."""
    with raw_connection(own.alias) as holder:
        holder.execute("LOCK TABLES queue_messages WRITE")
        document, _ = failing("doctor", "--database", own.alias)
        holder.execute("UNLOCK TABLES")
    (found, *_) = [one for one in document["findings"] if "failed" in one["what"]]
    assert found["repair"] == "manage.py mqueue blockers --database doctored"


def test_a_server_that_is_down(own: OwnServer, mqueue: Run) -> None:
    own.stop()
    connections[own.alias].close()
    try:
        with pytest.raises(CommandError, match="database error: "):
            mqueue("doctor", "--database", own.alias)
    finally:
        own.start()
