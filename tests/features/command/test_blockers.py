"""``manage.py mqueue blockers``: connections that block the queue, with their programs, and what ends them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from pytest_django import DjangoDbBlocker

from django_mqueue import Message, publish, subscribe
from django_mqueue.models import Offset
from django_mqueue.store.connection.session_variables import PROGRAM
from django_mqueue.store.server.sessions import open_transactions, sessions
from tests.own_server import own_server_of_kind
from tests.servers import kind_of_run
from tests.support.running import registered, run
from tests.support.threads import Background, RawConnection, raw_connection
from tests.support.transactions import HeldTransaction, wait_until

from .conftest import Run

Json = Callable[..., dict[str, Any]]
MARIADB = kind_of_run() == "mariadb"
FEW = "few_privileges"


@pytest.fixture(scope="module")
def own(django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The alias of a server with the performance schema, as MySQL has it by default.

    Its time zone is five hours behind UTC: the server shows the times of transactions in it.
    """
    further = ["--performance-schema=ON"]
    with (
        django_db_blocker.unblock(),
        patch.dict(os.environ, TZ="XXX5"),
        own_server_of_kind(kind_of_run(), "blocked", further) as server,
    ):
        yield server.alias


def move(using: str) -> None:
    Offset.objects.using(using).filter(topic="orders", consumer_group="billing").update(updated_at=1)


def find(
    mqueue_json: Json, using: str, condition: Callable[[dict[str, Any]], Any], what: str
) -> dict[str, Any]:
    """Run the verb until its document fulfils the condition: MariaDB answers from a cache."""

    def document() -> dict[str, Any] | None:
        found = mqueue_json("blockers", "--database", using)
        return found if condition(found) else None

    return wait_until(document, what, every=0.3)


def alone(held: HeldTransaction[Any]) -> Callable[[dict[str, Any]], bool]:
    """Return the condition that this transaction is the only open one. One that has just ended may still be listed."""
    return lambda found: [one["id"] for one in found["transactions"]] == [held.connection_id]


def test_nothing_blocks(own: str, mqueue_json: Json, mqueue: Run) -> None:
    assert find(mqueue_json, own, lambda found: not found["transactions"], "nothing blocks") == {
        "waits": [], "transactions": [], "blocking": [], "missing": [],
    }  # fmt: skip
    assert "Open transactions that published or locked rows: none" in mqueue("blockers", "--database", own)


def test_a_row_that_another_connection_has_locked(own: str, mqueue_json: Json, mqueue: Run) -> None:
    subscribe("orders", "billing", using=own)
    with (
        HeldTransaction(lambda: move(own), using=own) as held,
        Background(lambda: move(own), using=own) as waiting,
    ):
        document = find(mqueue_json, own, lambda found: found["waits"], "the wait is visible")
        text = mqueue("blockers", "--database", own)
        held.rollback()
        waiting.result()
    (wait,) = document["waits"]
    assert (wait["id"], wait["blocked_by"]) == (waiting.connection_id, held.connection_id)
    assert wait["for"].startswith("queue_offsets.queue_offsets_")
    assert "'billing', 'orders', ''" in wait["for"]
    assert wait["statement"].startswith("UPDATE `queue_offsets`")
    (blocking,) = document["blocking"]
    assert blocking["kill"] == f"KILL {held.connection_id};"
    assert f"KILL {held.connection_id};  ends a program without a name, root from localhost" in text
    assert "messages that it published, are gone" in text


def test_kill_ends_the_wait(own: str, mqueue_json: Json) -> None:
    """The line can be pasted."""
    subscribe("orders", "billing", using=own)
    waiting = Background(lambda: move(own), using=own)
    with raw_connection(own) as killer, RawHolder(own) as holder, waiting:
        kill = f"KILL {holder.connection.id};"
        find(
            mqueue_json,
            own,
            lambda found: found["waits"] and kill in [one["kill"] for one in found["blocking"]],
            "the wait and its cause are visible",
        )
        killer.execute(kill)
        waiting.result()


class RawHolder:
    """A connection that holds the lock on the registration until it is killed."""

    def __init__(self, using: str) -> None:
        self.connection = RawConnection(using)
        self.connection.execute("SELECT 1 FROM queue_offsets WHERE topic = 'orders' FOR UPDATE")

    def __enter__(self) -> RawHolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()


def test_a_transaction_that_ends_while_the_verb_reads_is_not_shown(own: str, mqueue_json: Json) -> None:
    subscribe("orders", "billing", using=own)
    with HeldTransaction(lambda: publish("orders", {"order": 1}, using=own), using=own) as held:
        find(mqueue_json, own, alone(held), "the transaction is visible")

        def after_its_end(using: str) -> Any:
            held.rollback()
            wait_until(lambda: held.connection_id not in sessions(using), "its session has ended")
            return sessions(using)

        with patch("django_mqueue.doctor.blockers.sessions.sessions", after_its_end):
            document = mqueue_json("blockers", "--database", own)
    assert (document["transactions"], document["blocking"]) == ([], [])


def test_an_open_transaction_that_published(own: str, mqueue_json: Json, mqueue: Run) -> None:
    subscribe("orders", "billing", using=own)

    with HeldTransaction(lambda: publish("orders", {"order": 1}, using=own), using=own) as held:
        document = find(mqueue_json, own, alone(held), "the transaction is visible")
        text = mqueue("blockers", "--database", own)
        later = mqueue_json("blockers", "--database", own, "--older-than", "1h")
        held.rollback()
    (open_one,) = document["transactions"]
    assert open_one["doing"].startswith("idle for")
    with connections[own].cursor() as cursor:
        cursor.execute("SELECT @@system_time_zone")
        assert cursor.fetchone() == ("XXX",)
    if MARIADB:
        assert open_one["published"] == "perhaps"
        assert "perhaps: the server does not show" in text
    else:
        assert (open_one["published"], "orders" in open_one["topics"]) == ("yes", True)
    assert document["blocking"][0]["kill"] == f"KILL {held.connection_id};"
    assert later["transactions"] == []


def test_an_idle_transaction_that_only_locked_rows(own: str, mqueue_json: Json, mqueue: Run) -> None:
    """A worker that waits for such a row pauses between its attempts, and the transaction must be visible then."""
    subscribe("orders", "billing", using=own)
    with RawHolder(own) as holder:
        id = holder.connection.connection_id

        def only(found: dict[str, Any]) -> bool:
            return [one["id"] for one in found["transactions"]] == [id]

        document = find(mqueue_json, own, only, "the transaction is visible")
        text = mqueue("blockers", "--database", own)
    assert document["waits"] == []
    (idle,) = document["transactions"]
    assert (idle["rows_changed"], idle["rows_locked"] > 0) == (0, True)
    assert idle["published"] == ("perhaps" if MARIADB else "no")
    assert document["blocking"][0]["kill"] == f"KILL {id};"
    assert "Paste a KILL line into manage.py dbshell" in text


@pytest.mark.skipif(MARIADB, reason="MariaDB does not show which tables the locked rows belong to")
def test_a_transaction_that_locked_rows_of_other_tables_is_not_listed(own: str, mqueue_json: Json) -> None:
    with raw_connection(own) as other:
        other.execute("SELECT * FROM django_migrations LIMIT 1 FOR UPDATE")
        # An idle session is listed after a second.
        wait_until(lambda: sessions(own)[other.id].seconds >= 1, "the session is idle for a second")
        assert other.id in [one.session for one in open_transactions(own)]
        assert mqueue_json("blockers", "--database", own)["transactions"] == []


def test_a_changed_table_waits_for_a_transaction(own: str, mqueue_json: Json) -> None:
    """The verb itself does not wait behind the ALTER TABLE."""
    alter = "ALTER TABLE queue_messages COMMENT = 'changed'"

    def change() -> None:
        with connections[own].cursor() as cursor:
            cursor.execute(alter)

    with (
        HeldTransaction(lambda: publish("orders", {"order": 1}, using=own), using=own) as held,
        Background(change, using=own) as waiting,
    ):

        def only(found: dict[str, Any]) -> bool:
            return [one["id"] for one in found["waits"]] == [waiting.connection_id]

        document = find(mqueue_json, own, only, "the wait is visible")
        held.rollback()
        waiting.result()
    (wait,) = document["waits"]
    assert wait["for"] == "queue_messages (its definition)"
    assert wait["statement"] == alter
    assert wait["blocked_by"] == (None if MARIADB else held.connection_id)


def test_a_worker_shows_its_name(own: str, mqueue_json: Json) -> None:
    """The sessions of its handlers too. After the worker has ended, no connection of the process gets a name."""
    called, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        with transaction.atomic(using=own):
            move(own)
            called.set()
            assert go_on.wait(60)

    subscribe("orders", "billing", using=own)
    publish("orders", {"order": 1}, using=own)
    with registered("orders", handle, "clerks"):
        worker = Background(
            lambda: call_command(
                "runconsumer", "orders:clerks", database=own, name="billing-1", drain=True, verbosity=0
            ),
            using=own,
        )
        with worker:
            wait_until(lambda: called.is_set() or worker.is_done, "the handler runs")
            with Background(lambda: move(own), using=own) as waiting:
                document = find(mqueue_json, own, lambda found: found["waits"], "the wait is visible")
                go_on.set()
                waiting.result()
            worker.result()
    (wait,) = document["waits"]
    assert wait["its_program"].startswith("worker billing-1: ")
    (blocking,) = document["blocking"]
    assert blocking["program"] == wait["its_program"]
    assert "messages that it handled in the transaction are delivered again" in blocking["effect"]
    connections[own].close()
    with connections[own].cursor() as cursor:
        cursor.execute(f"SELECT @{PROGRAM}")
        assert cursor.fetchone() == (None,)


def test_a_project_names_its_web_processes(own: str, mqueue_json: Json) -> None:
    """As docs/reference/mqueue-doctor.md says: with ``init_command``."""
    options = connections.settings[own]["OPTIONS"]
    with (
        patch.dict(options, init_command=f"SET @{PROGRAM} = 'web shop-1'"),
        HeldTransaction(lambda: publish("orders", {"order": 1}, using=own), using=own) as held,
    ):
        document = find(mqueue_json, own, alone(held), "the transaction is visible")
        held.rollback()
    assert document["transactions"][0]["program"] == "web shop-1"
    assert document["blocking"][0]["program"] == "web shop-1"
    assert document["blocking"][0]["pid"] > 0


@contextmanager
def acting_with(using: str, *grants: str) -> Iterator[None]:
    """Act as an account that has the privileges of a viewer, and these."""
    settings = connections[using].settings_dict
    before = settings["USER"], settings["PASSWORD"]
    with raw_connection(using) as root:
        root.execute(f"DROP USER IF EXISTS {FEW}@localhost")
        root.execute(f"CREATE USER {FEW}@localhost IDENTIFIED BY 'only-for-tests'")
        for grant in (f"SELECT ON `{settings['NAME']}`.*", *grants):
            root.execute(f"GRANT {grant} TO {FEW}@localhost")
        connections[using].close()
        settings["USER"], settings["PASSWORD"] = FEW, "only-for-tests"
        try:
            yield
        finally:
            connections[using].close()
            settings["USER"], settings["PASSWORD"] = before
            root.execute(f"DROP USER {FEW}@localhost")


def test_an_account_that_may_not_see_it(own: str, mqueue_json: Json, mqueue: Run) -> None:
    """The report names the GRANT. With it, the report is complete."""
    subscribe("orders", "billing", using=own)
    with HeldTransaction(lambda: publish("orders", {"order": 1}, using=own), using=own) as held:
        with acting_with(own):
            document = mqueue_json("blockers", "--database", own)
            text = mqueue("blockers", "--database", own)
        assert document["waits"] == document["transactions"] == []
        (missing,) = document["missing"]
        assert missing["repair"] == (
            f"GRANT PROCESS ON *.* TO '{FEW}'@'localhost';"
            f" GRANT SELECT ON performance_schema.* TO '{FEW}'@'localhost';"
        )
        assert "Open transactions that published or locked rows: none that this account may see" in text
        assert missing["repair"] in text
        with acting_with(own, "PROCESS ON *.*", "SELECT ON performance_schema.*"):
            document = find(mqueue_json, own, alone(held), "the transaction is visible")
        held.rollback()
    assert document["missing"] == []


@pytest.mark.django_db(transaction=True)
def test_without_the_performance_schema(mqueue_json: Json) -> None:
    """As MariaDB is by default. The named lock of a worker's session still shows its name."""
    (missing,) = mqueue_json("blockers")["missing"]
    assert missing["what"] == "the performance schema is off"
    called, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        called.set()
        assert go_on.wait(60)

    publish("orders", {"order": 1})
    with registered("orders", handle, "clerks"):
        worker = Background(lambda: run("orders:clerks", name="billing-1"))
        with worker:
            wait_until(lambda: called.is_set() or worker.is_done, "the handler runs")
            wait_until(
                lambda: "worker billing-1" in {one.program for one in sessions("default").values()},
                "the session of the worker's loop has its name",
            )
            go_on.set()
            worker.result()
