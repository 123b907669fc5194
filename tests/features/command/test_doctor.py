"""``manage.py mqueue doctor``: each finding is provoked on a real server, and the report names it with its repair."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_mqueue import Subscription, pause, publish, subscribe
from django_mqueue.doctor import tables
from django_mqueue.doctor.accounts import ACCOUNTS
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease
from django_mqueue.store.gates import ensure
from django_mqueue.store.server import leftovers, plans
from tests.factories import DeliveryStateFactory, LeaseFactory, OffsetFactory
from tests.features.test_settings import session
from tests.servers import kind_of_run
from tests.support.accounts import acting_as, documented
from tests.support.processes import database_ms
from tests.support.subscribers import poll_until
from tests.support.threads import raw_connection
from tests.support.transactions import HeldTransaction

from .conftest import Run

pytestmark = pytest.mark.django_db(transaction=True)
Json = Callable[..., dict[str, Any]]
Failing = Callable[..., tuple[dict[str, Any], str]]
MARIADB = kind_of_run() == "mariadb"


def about(document: dict[str, Any], subject: str) -> list[dict[str, Any]]:
    return [finding for finding in document["findings"] if finding["about"] == subject]


def the(document: dict[str, Any], subject: str) -> dict[str, Any]:
    (found,) = about(document, subject)
    return found


def test_a_sound_queue(mqueue_json: Json, failing: Failing) -> None:
    """The tests' server loses the last commits in a crash of the machine. This is the only warning."""
    with Subscription("orders", "billing") as subscription:
        publish("orders", {"order": 1}, key="1")
        poll_until(subscription, 1)
        document = mqueue_json("doctor")
    assert {one["about"] for one in document["findings"] if one["severity"] != "info"} == {"durability"}
    facts = {row["name"]: row["value"] for row in document["facts"]}
    assert facts["isolation"] == "READ COMMITTED"
    assert facts["server"].startswith("MariaDB" if MARIADB else "MySQL")
    assert facts["max_allowed_packet"] == "67108864"
    assert re.search(r"[+-]\d+\.\d{3} s", facts["clock"])
    assert facts["encryption"] == "none", "the tests use a socket"
    assert failing("doctor", "--fail-on-warning")[1] == "the doctor found warnings: 1"


def test_the_group_that_does_the_operations_of_the_admin(mqueue_json: Json) -> None:
    """Each worker without names of handlers registers it. The lists of topics leave it out."""
    call_command("runconsumer", "mqueue_operations", drain=True, verbosity=0)
    assert about(mqueue_json("doctor"), "state") == []


def test_the_time_that_other_sessions_wait_for_locks(mqueue_json: Json) -> None:
    """The doctor itself waits for a second at most."""
    with session(innodb_lock_wait_timeout=3600):
        document = mqueue_json("doctor")
    facts = {row["name"]: row["value"] for row in document["facts"]}
    assert facts["innodb_lock_wait_timeout"] == "3600 s"
    assert "innodb_lock_wait_timeout is 3600 s" in [one["what"] for one in about(document, "timeouts")]


def test_the_text_has_what_why_and_repair(mqueue: Run) -> None:
    text = mqueue("doctor")
    assert re.search(
        r"^WARNING  durability: innodb_flush_log_at_trx_commit is 2\n +Why: A crash .*\n +Repair: SET GLOBAL .* = 1;",
        text,
        re.MULTILINE,
    )
    assert text.rstrip().endswith("errors: 0, warnings: 1")


def test_a_session_of_another_isolation(mqueue_json: Json) -> None:
    name = "tx_isolation" if MARIADB else "transaction_isolation"
    with session(**{name: "SERIALIZABLE", "sql_mode": ""}):
        document = mqueue_json("doctor")
    assert the(document, "isolation")["check"] == "django_mqueue.W002"
    assert the(document, "sql_mode")["check"] == "django_mqueue.W006"


def test_a_session_that_is_read_only(failing: Failing) -> None:
    name = "tx_read_only" if MARIADB else "transaction_read_only"
    with session(**{name: 1}):
        document, reason = failing("doctor")
    found = the(document, "server")
    assert (found["severity"], found["check"]) == ("error", "django_mqueue.E008")
    assert reason == "the doctor found errors: 1"


def test_the_accounts_are_those_of_the_documentation() -> None:
    letters = {"SELECT": "SELECT", "INSERT": "INSERT", "UPDATE": "UPDATE", "DELETE": "DELETE"}
    for name, needs in ACCOUNTS.items():
        found = {
            table: {verb for verb in letters if verb in verbs}
            for verbs, table in re.findall(r"GRANT (.+) ON shop\.(\w+)", documented()[name])
        }
        assert found == {table: set(some) for table, some in needs.items()}, name


def test_an_account_with_few_privileges(failing: Failing, mqueue_json: Json) -> None:
    """Its own work is possible: then what it cannot check is only a note."""
    subscribe("orders", "billing")
    with acting_as("publisher"):
        document, _ = failing("doctor")
        as_publisher = mqueue_json("doctor", "--account", "publisher")
    (lacks,) = [one for one in about(document, "privileges") if one["severity"] == "error"]
    assert "DELETE on queue_partition_leases" in lacks["what"]
    assert "is sufficient for the kind publisher" in lacks["why"]
    assert re.search(
        r"GRANT SELECT, UPDATE, DELETE ON queue_messages TO 'mq_publisher'@'.+?';", lacks["repair"]
    )
    assert not [one for one in as_publisher["findings"] if one["severity"] == "error"]
    looking = [one for one in about(as_publisher, "privileges") if "blockers" in one["why"]]
    assert re.search(r"GRANT PROCESS ON \*\.\* TO 'mq_publisher'@", looking[0]["repair"])


@pytest.mark.parametrize("account", ["viewer", "operator", "worker"])
def test_an_account_with_its_privileges(account: str, mqueue_json: Json) -> None:
    subscribe("orders", "billing")
    with acting_as(account):
        document = mqueue_json("doctor", "--account", account)
    assert [one for one in document["findings"] if one["severity"] == "error"] == []
    assert not [one for one in document["findings"] if "failed" in one["what"]]


def test_privileges_of_a_role_count(mqueue_json: Json) -> None:
    """SHOW GRANTS would not show them."""
    name = connection.settings_dict["NAME"]
    with acting_as("publisher"), raw_connection() as root:
        pass
    with raw_connection() as root:
        root.execute("DROP ROLE IF EXISTS mq_role")
        root.execute("CREATE ROLE mq_role")
        root.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{name}`.* TO mq_role")
        with acting_as_with_role(root):
            document = mqueue_json("doctor")
        root.execute("DROP ROLE mq_role")
    assert not [one for one in about(document, "privileges") if one["severity"] == "error"]


@contextmanager
def acting_as_with_role(root: Any) -> Iterator[None]:
    """Act as the publisher, whose sessions have the role."""
    with acting_as("publisher"):
        user = f"{connection.settings_dict['USER']}@localhost"
        root.execute(f"GRANT mq_role TO {user}")
        root.execute(
            f"SET DEFAULT ROLE mq_role FOR {user}" if MARIADB else f"SET DEFAULT ROLE mq_role TO {user}"
        )
        yield


def test_topics_without_a_group(mqueue_json: Json) -> None:
    publish("odrers", {"order": 1})
    subscribe("orders", "billing")
    found = the(mqueue_json("doctor"), "topics")
    assert found["what"] == "topics with messages have no group: odrers"
    assert found["repair"].endswith("manage.py mqueue subscribe odrers GROUP")


def test_leases_that_nobody_renews(mqueue_json: Json) -> None:
    subscribe("orders", "billing")
    LeaseFactory(topic="orders", lease_renewed_at=database_ms() - 3_600_000)
    found = the(mqueue_json("doctor"), "leases")
    assert "worker-1 has not renewed 1 lease of group billing on orders for 1 h" in found["what"]
    assert "no other worker of the group is alive" in found["why"]


def test_a_lease_whose_row_is_locked(mqueue_json: Json) -> None:
    """Live workers would take over the lease, but a transaction has locked it."""
    publish("orders", {"order": 1}, key="1")
    with Subscription("orders", "billing", name="alive") as subscription:
        poll_until(subscription, 1)
        PartitionLease.objects.update(lease_renewed_at=database_ms() - 3_600_000)
        lock = PartitionLease.objects.select_for_update().filter(partition_key="1")
        with HeldTransaction(lambda: list(lock)):
            found = the(mqueue_json("doctor"), "leases")
    assert "although workers of the group are alive" in found["why"]
    assert found["repair"] == "manage.py mqueue blockers"


def test_a_group_that_blocks_deletion(mqueue_json: Json) -> None:
    subscribe("orders", "billing")
    offset = publish("orders", {"order": 1}, key="1").offset
    Message.objects.update(published_at=database_ms() - 3 * 3_600_000)
    found = the(mqueue_json("doctor"), "deletion")
    assert found["what"] == (
        "topic orders: Deletion waits for group billing, which has no live subscriber, 2 h past the retention"
    )
    assert str(offset) in found["why"]
    assert found["repair"].startswith("manage.py runconsumer orders:billing, or ")
    pause("orders", "billing")
    found = the(mqueue_json("doctor"), "deletion")
    assert "group billing, which is paused" in found["what"]
    assert found["repair"].startswith("manage.py mqueue resume orders billing")


def test_state_of_a_group_that_does_not_exist(mqueue_json: Json, mqueue: Run) -> None:
    """Its repair deletes the state."""
    LeaseFactory(topic="orders", consumer_group="it's gone")
    OffsetFactory(topic="orders", consumer_group="it's gone", partition_key="customer-1")
    for offset in (1, 2):
        DeliveryStateFactory(topic="orders", consumer_group="it's gone", message_offset=offset)
    found = the(mqueue_json("doctor"), "state")
    assert found["what"] == (
        "group it's gone is not registered for orders, and has rows in queue_delivery_state (2),"
        " queue_partition_leases (1), queue_offsets (1)"
    )
    assert found["repair"] == """manage.py mqueue unsubscribe orders 'it'"'"'s gone'"""
    mqueue("unsubscribe", "orders", "it's gone", "--yes")
    assert about(mqueue_json("doctor"), "state") == []


def test_a_group_that_subscribes_meanwhile(mqueue_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repair of a group that is not registered would remove it."""
    pairs = leftovers.pairs

    def after_a_subscription(using: str, table: str) -> Iterator[tuple[str, str]]:
        if subscribe("orders", "billing"):
            LeaseFactory(topic="orders")
        return pairs(using, table)

    monkeypatch.setattr(leftovers, "pairs", after_a_subscription)
    assert about(mqueue_json("doctor"), "state") == []


def test_state_without_messages(mqueue_json: Json) -> None:
    """Its repair can be pasted, also into a session at REPEATABLE READ: publishers do not wait for it."""
    subscribe("orders", "bill\\'ing")
    offset = publish("orders", {"order": 1}, key="1").offset
    for number in (offset, offset + 1):
        DeliveryStateFactory(
            topic="orders", consumer_group="bill\\'ing", partition_key="1", message_offset=number
        )
    found = the(mqueue_json("doctor"), "state")
    assert "delivery states of bill\\'ing on orders without a message: 1 of the first 1000" in found["what"]
    with raw_connection() as pasted:
        pasted.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for statement in found["repair"].partition("and run: ")[2].split("; "):
            pasted.execute(statement)
        with session(innodb_lock_wait_timeout=1):
            publish("orders", {"order": 2})
        pasted.commit()
    assert [one.message_offset for one in DeliveryState.objects.all()] == [offset]
    assert about(mqueue_json("doctor"), "state") == []


def test_gate_rows_that_are_missing(failing: Failing) -> None:
    Offset.objects.filter(topic="", partition_key="gate-000-slot-000").delete()
    try:
        found = the(failing("doctor")[0], "gates")
    finally:
        with connection.cursor() as cursor:
            ensure(cursor)
    assert "4095 rows of gates; there must be 4096" in found["what"]
    assert found["repair"] == "manage.py migrate --database default"


def test_a_setting_that_is_invalid(failing: Failing) -> None:
    with override_settings(MQUEUE={"RETENTION": -1}):
        found = the(failing("doctor")[0], "settings")
    assert found["check"] == "django_mqueue.E001"
    assert "RETENTION" in found["what"]


@pytest.mark.parametrize(
    ("setting", "value"), [("LEASE_DURATION", 0), ("MAX_PAYLOAD_BYTES", "much"), ("RETENTION", "long")]
)
def test_an_invalid_setting_does_not_prevent_the_other_checks(
    failing: Failing, setting: str, value: object
) -> None:
    """The topic has a group and a message, so that all checks have something to read."""
    subscribe("orders", "billing")
    publish("orders", {"order": 1}, key="1")
    OffsetFactory(topic="orders", consumer_group="gone", partition_key="1")
    with override_settings(MQUEUE={setting: value}):
        document = failing("doctor")[0]
    assert setting in the(document, "settings")["what"]
    assert "durability" in {one["about"] for one in document["findings"]}


def test_a_database_that_does_not_exist(mqueue: Run) -> None:
    with (
        override_settings(MQUEUE={"DATABASE": "typo"}),
        pytest.raises(
            CommandError, match=r"""MQUEUE\["DATABASE"\] 'typo' is no entry of DATABASES: default"""
        ),
    ):
        mqueue("doctor")


def test_plans_of_a_worker_use_the_named_indexes() -> None:
    subscribe("orders", "billing")
    for number in range(20):
        publish("orders", {"order": number}, key=f"{number}")
    found = plans.of_reads("default", "billing", "orders", "1", 30_000)
    assert {one.statement for one in found} >= {"discovery", "next messages of a partition", "free leases"}
    assert {one.table for one in found} >= {
        "queue_messages",
        "queue_delivery_state",
        "queue_partition_leases",
    }
    assert not list(tables.plan_findings("default", "orders", "billing"))
