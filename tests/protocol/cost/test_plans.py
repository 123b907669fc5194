"""EXPLAIN contracts: no statement scans or sorts more than it returns.

The log has a million messages, or a fifth of them in a run with a sample.

The tests explain the statements that a working consumer executes. They contain no statement themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from django.db import connection
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from django_mqueue import (
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    cancel,
    pause,
    publish,
    publish_many,
    purge,
    redrive,
    reschedule,
    reset,
    resume,
    scheduled,
    subscribe,
)
from django_mqueue.inspect import messages, remove, send_to_front
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.policy.message_query import STATUSES
from django_mqueue.protocol.promoting import Promoter
from django_mqueue.store.queries import job_rows
from tests.support.plans import Plan, planned
from tests.support.processes import wait_until

from .asking import ask_and_answer, open_many
from .full_tables import FIFTH, MILLION, PARTITIONS, TABLES, Sizes, fill_all

pytestmark = [pytest.mark.django_db, pytest.mark.one_server, pytest.mark.always("django_mqueue/")]

BUSY = {
    "DISCOVERY_INTERVAL": 0.05,
    "LEASE_RENEWAL_INTERVAL": 0.05,
    "LEASE_DURATION": 0.5,
    "GC_INTERVAL": 0.1,
    "RETENTION": 0,
}


def is_settled(subscription: Subscription) -> bool:
    """Poll once more, because unacknowledged messages come one by one. Return True if the log is settled."""
    subscription.ack(subscription.poll(max_messages=1))
    return Offset.objects.get(topic="full", consumer_group="").offset_acked > 0


def work() -> None:
    """Execute every statement of a subscriber: claims, settlements, a stale ack, discovery, watermarks, deletion."""
    moment = threading.Event()
    with Subscription("full", "ahead", name="a", max_attempts=2) as subscription:
        wait_until(lambda: is_settled(subscription), "the log is settled", every=0.05)
        for _ in range(10):
            deliveries = subscription.poll(max_messages=200)
            for delivery, verb in zip(deliveries, ("nack", "postpone", "reject"), strict=False):
                getattr(delivery, verb)()
            for delivery in deliveries[3:5]:
                delivery.extend(30)
            subscription.ack(deliveries[3:])
            publish("full", "new", key="k1")
            publish("full", "new", key="k1", id="given")
            publish_many("full", ["a", "b"])
            moment.wait(0.15)
        lost = wait_until(subscription.poll, "it has some to lose")
        with Subscription("full", "ahead", name="a"), pytest.raises(StaleDelivery):
            subscription.ack(lost)
        subscription._subscriber = None  # the second subscriber took its place: nothing to leave
    with Subscription("full", "ahead", name="b", strict=True) as subscription:
        for _ in range(3):
            subscription.ack(subscription.poll())
            moment.wait(0.1)


def operate() -> None:
    """Execute all operator verbs for groups and dead letters."""
    subscribe("full_dlq", "undertaker")
    for verb in (pause, resume):
        assert verb("full", "ahead") == 1
        assert verb("full") == 1
    publish("full", "targeted", key="k1", group="ahead")
    publish_many("full", [OutgoingMessage("targeted", key="k1", id="targeted", group="ahead")])
    assert redrive("full", ids=["dead-7", "dead-8"]) == 2
    assert redrive("full", group="ahead", limit=3) == 3
    assert redrive("full", limit=600, edit=lambda letter: 2) == 600
    assert purge("full", ids=["dead-1007"]) == 1
    assert purge("full", limit=600) == 600
    for start in (datetime(2026, 1, 1, tzinfo=UTC), "latest"):
        reset("full", "behind", start, force=True)


def come_later() -> None:
    """Execute all verbs for scheduled messages, and promote 600 messages that are due."""
    for _ in range(2):
        publish("full", 1, key="k1", id="soon", delay=3600)
        publish("full", 2, key="k1", id="soon", delay=3600, on_duplicate="replace")
    publish_many("full", [OutgoingMessage(1, key="k1", id="soon", delay=60), OutgoingMessage(1, delay=60)])
    assert list(scheduled("full", id="soon", key="k1"))
    assert list(islice(scheduled("full"), 600))
    assert reschedule("full", "soon", key="k1", delay=60)
    assert cancel("full", "soon", key="k1")
    subscribe("full", "ahead")
    publish("full", 1, key="k1", id="given", delay=0.001, group="ahead")
    publish_many("full", [OutgoingMessage(n, key="k2", delay=0.001) for n in range(600)])
    promoter = Promoter("default", "full")
    wait_until(lambda: promoter.promote().promoted, "scheduled messages are due")
    promoter.promote()


def look() -> None:
    """Execute all queries of messages, by status, key, id, time and kind, and the changes that an operator can make."""
    moment = datetime.fromtimestamp(0.001, UTC)
    for status in (None, *STATUSES):
        messages("full", group="behind", status=status)
        messages("full", group="behind", status=status, key="k7")
        messages("full", group="behind", status=status, id="id-7", key="k7")
    messages("full", group="behind", id="id-7")
    messages("full", group="behind", kind="none", newest_first=True, scan_limit=1000)
    messages("full", after=moment, before=moment + timedelta(milliseconds=1))
    messages("full", after=moment, newest_first=True, payload__x=1, scan_limit=1000)
    assert job_rows.by_id("default", "ahead", ("full", "full_scheduled"), "k1", "given")
    job_rows.newest_copy("default", "ahead", "full", "dead-7")
    job_rows.parked("default", "ahead", "full", "k1", "given")
    job_rows.newest_id("default", ("full", "full_scheduled"), "k1", "1")
    for status in ("pending", "waiting"):
        send_to_front("full", group="behind", status=status, limit=200)
        remove("full", group="behind", status=status, limit=200)


@pytest.fixture(scope="module")
def sizes(seed: str | None) -> Sizes:
    return FIFTH if seed else MILLION


@pytest.fixture(scope="module")
def plans(django_db_setup: None, django_db_blocker: DjangoDbBlocker, sizes: Sizes) -> Iterator[list[Plan]]:
    with django_db_blocker.unblock(), override_settings(MQUEUE=BUSY):
        try:
            open_many()
            fill_all(sizes)
            with planned() as found:
                work()
                look()
                operate()
                come_later()
                ask_and_answer()
            yield list(found.values())
        finally:
            with connection.cursor() as cursor:
                for table in TABLES[:3]:  # To delete so many rows would take long.
                    cursor.execute(f"TRUNCATE {table}")
                cursor.execute("DELETE FROM queue_offsets WHERE topic <> ''")
                cursor.execute("DELETE FROM queue_subscriber_heartbeats")
            connection.close()


def the(plans: list[Plan], *parts: str) -> Plan:
    """Return the plan of the longest statement that contains all these texts."""
    found = [plan for plan in plans if all(part in plan.sql for part in parts)]
    assert found, f"no statement with {parts} was executed"
    return max(found, key=lambda plan: len(plan.sql))


def test_tables_were_full_when_the_plans_were_made(plans: list[Plan], sizes: Sizes) -> None:
    assert Message.objects.count() > 2 * sizes.messages - 10_000, "collection has taken some"
    assert DeliveryState.objects.count() > 1.5 * sizes.done, (
        "more than those of a group that was reset are gone"
    )
    assert len(plans) > 25


def test_no_statement_scans_a_table(plans: list[Plan]) -> None:
    """Each big table is read through an index, and only the part that the statement needs."""
    names = {*TABLES, "m", "s", "l", "o", "r"}
    for plan in plans:
        for access in plan.accesses:
            if access.table in names and not plan.sql.startswith("INSERT"):
                assert access.type not in ("ALL", "index"), str(plan)


READ_AT_MOST = 30_000
"""A statement for 200 partitions reads up to 50 messages of each, and their state. Discovery reads
all partitions of the topic. A page of deletion reads the watermarks of all groups for its thousand rows."""


def test_no_statement_reads_more_than_its_part(plans: list[Plan]) -> None:
    """The storage engine counts the rows during the execution, independently of the plan."""
    dearest = max(plans, key=lambda plan: plan.read)
    assert 1_000 < dearest.read <= READ_AT_MOST, str(dearest)


SORTED_ON_PURPOSE = (
    "ORDER BY subscriber_name",  # a group's few members
    "SELECT DISTINCT topic, partition_key",  # a page of partitions: the scan stops at its end
    "FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` IN",  # a batch of due messages that is promoted
    "ORDER BY message_offset",  # the waiting retry of one strict key: one message
    "INSERT IGNORE INTO queue_partition_leases",  # the partitions of one statement, to find existing rows
    "SELECT failed_group FROM queue_messages",  # the groups that have dead letters
    "FORCE INDEX (queue_messages_due) WHERE topic = %s AND failed_group IN",  # dead letters chosen by their ids
    "m.original_id = %s AND m.consumer_group = %s",  # the copies of one job
    "FORCE INDEX (queue_leases_holder) SET",  # a subscriber's leases, noted before their index changes
)
"""These statements sort few rows, even if the tables are large."""


def test_no_statement_sorts_or_needs_a_temporary_table(plans: list[Plan]) -> None:
    for plan in plans:
        if any(part in plan.sql for part in SORTED_ON_PURPOSE):
            continue
        for access in plan.accesses:
            if access.table.startswith("<union") or "Table function" in access.extra:
                continue  # the union of the branches; a list of offsets as a table
            assert "filesort" not in access.extra, str(plan)
            assert "temporary" not in access.extra, str(plan)


def test_the_tail_is_read_from_its_index_alone(plans: list[Plan]) -> None:
    plan = the(plans, "SELECT topic, `offset`, partition_key", "LIMIT 1000")
    new, due = (access for access in plan.accesses if access.table == "queue_messages")
    assert (new.key, new.type) == ("queue_messages_tail", "range"), str(plan)
    assert (due.key, due.type) == ("queue_messages_due", "ref"), str(
        plan
    )  # In the order of the index, one row.
    assert all("Using index" in access.extra for access in (new, due)), str(plan)


def test_undelivered_messages_are_read_by_partition_and_state_by_primary_key(plans: list[Plan]) -> None:
    plan = the(plans, "SELECT m.partition_key, m.`offset` FROM queue_messages m", "s.message_offset IS NULL")
    assert {(a.key, a.type) for a in plan.of("m")} == {("queue_messages_partition", "range")}, str(plan)
    assert {(a.key, a.type) for a in plan.of("s")} == {("PRIMARY", "eq_ref")}, str(plan)


def test_retries_are_read_in_the_order_of_the_index(plans: list[Plan]) -> None:
    plan = the(plans, "in_flight = 0 ORDER BY invisible_until")
    used = {(a.key, a.type) for a in plan.of("queue_delivery_state")}
    assert used == {("queue_delivery_state_due", "ref")}, str(plan)


def test_what_was_left_unanswered_is_found_by_the_same_index(plans: list[Plan]) -> None:
    plan = the(plans, "FROM queue_delivery_state FORCE INDEX", "AND in_flight = 1")
    (access,) = plan.of("queue_delivery_state")
    assert access.key == "queue_delivery_state_due", str(plan)


def test_a_claim_is_read_back_by_primary_keys(plans: list[Plan]) -> None:
    plan = the(plans, "SELECT m.`offset`", "STRAIGHT_JOIN queue_delivery_state s", "m.payload")
    assert {(a.key, a.type) for a in plan.of("m")} <= {("PRIMARY", "range"), ("PRIMARY", "const")}, str(plan)
    assert {a.key for a in plan.of("s")} == {"PRIMARY"}, str(plan)
    assert max(a.rows for a in plan.of("m")) <= 250, str(plan)


def test_a_claim_marks_messages_by_their_offsets(plans: list[Plan]) -> None:
    plan = the(plans, "INSERT INTO queue_delivery_state", "FROM queue_messages m")
    assert {a.key for a in plan.of("m")} <= {"PRIMARY", "queue_messages_tail"}, str(plan)
    assert max(a.rows for a in plan.of("m")) <= 250, str(plan)


def test_redeliveries_are_marked_by_primary_key(plans: list[Plan]) -> None:
    plan = the(plans, "UPDATE queue_delivery_state s", "retry_count = retry_count + handed")
    (access,) = plan.accesses
    assert access.key == "PRIMARY", str(plan)
    assert access.rows <= 250, str(plan)


def test_leases_are_locked_by_their_natural_key(plans: list[Plan]) -> None:
    plan = the(plans, "STRAIGHT_JOIN queue_partition_leases l", "r.paused = 0", "SKIP LOCKED")
    assert {a.key for a in plan.of("l")} == {"queue_leases_partition"}, str(plan)
    assert {a.key for a in plan.of("r")} <= {"queue_offsets_partition", "PRIMARY"}, str(plan)


def test_answers_find_state_by_primary_key_and_the_lease_by_its_own(plans: list[Plan]) -> None:
    plan = the(plans, "UPDATE", "s.acked = 1, s.in_flight = 0")
    assert {a.key for a in plan.of("s")} == {"PRIMARY"}, str(plan)
    assert max(a.rows for a in plan.of("s")) <= 250, str(plan)
    assert {(a.key, a.type) for a in plan.of("l")} == {("queue_leases_partition", "eq_ref")}, str(plan)


def test_the_first_open_message_is_found_by_partition(plans: list[Plan]) -> None:
    plan = the(plans, "s.acked IS NULL OR s.acked = 0", "LIMIT 1")
    assert {(a.key, a.type) for a in plan.of("m")} == {("queue_messages_partition", "range")}, str(plan)
    assert {(a.key, a.type) for a in plan.of("s")} == {("PRIMARY", "eq_ref")}, str(plan)


def test_leases_are_renewed_by_holder(plans: list[Plan]) -> None:
    plan = the(plans, "SELECT id FROM queue_partition_leases", "AND holder = %s FOR UPDATE SKIP LOCKED")
    (access,) = plan.accesses
    assert access.key in ("queue_leases_holder", "queue_leases_partition"), str(plan)


def test_leases_are_changed_by_their_ids(plans: list[Plan]) -> None:
    for text in (
        "SELECT id, partition_key FROM queue_partition_leases",
        "SET leased_by",
        "SET lease_renewed_at",
    ):
        plan = the(plans, text, "FORCE INDEX (PRIMARY)")
        (access,) = plan.accesses
        assert access.key == "PRIMARY", str(plan)


def test_garbage_is_found_a_page_at_a_time_in_the_order_of_the_index(plans: list[Plan]) -> None:
    plan = the(
        plans, "SELECT `offset`, partition_key, consumer_group FROM queue_messages", "AND `offset` <= %s"
    )
    (access,) = plan.accesses
    assert (access.key, access.type) == ("queue_messages_tail", "range"), str(plan)
    assert "Using index" in access.extra, str(plan)


def test_garbage_is_deleted_by_primary_keys(plans: list[Plan]) -> None:
    log = the(plans, "DELETE m FROM", "doomed")
    assert {(a.key, a.type) for a in log.of("m")} == {("PRIMARY", "eq_ref")}, str(log)
    state = the(plans, "DELETE s FROM", "STRAIGHT_JOIN queue_messages m")
    for alias in ("m", "s"):
        assert {(a.key, a.type) for a in state.of(alias)} == {("PRIMARY", "eq_ref")}, str(state)


def test_registrations_are_locked_by_their_topic(plans: list[Plan]) -> None:
    """A pause of a topic locks the registrations of its groups, and reads no row of another topic."""
    for which, index in (("= %s", "queue_offsets_partition"), ("> ''", "queue_offsets_groups")):
        plan = the(plans, f"WHERE consumer_group {which}", "paused <> %s FOR UPDATE")
        (access,) = plan.accesses
        assert access.key == index, str(plan)
        assert plan.read <= 4, str(plan)


def test_a_reset_reads_and_deletes_state_by_its_key(plans: list[Plan]) -> None:
    page = the(plans, "SELECT partition_key, message_offset FROM queue_delivery_state", "LIMIT 1000")
    assert {access.key for access in page.accesses} == {"PRIMARY"}, str(page)
    delete = the(plans, "DELETE t FROM", "STRAIGHT_JOIN queue_delivery_state t")
    assert {(access.key, access.type) for access in delete.of("t")} == {("PRIMARY", "eq_ref")}, str(delete)


def test_letters_are_read_in_offset_order_or_by_their_ids(plans: list[Plan]) -> None:
    page = the(plans, "LENGTH(payload)", "failed_group IN (%s, %s) AND `offset` >")
    assert {a.key for a in page.accesses} == {"queue_messages_tail"}, str(page)
    assert page.read <= 500, str(page)
    named = the(plans, "LENGTH(payload)", "original_id IN")
    assert {a.key for a in named.accesses} == {"queue_messages_due"}, str(named)
    assert named.read <= 20, str(named)


def test_letters_are_moved_by_primary_keys(plans: list[Plan]) -> None:
    for parts in (
        ("doomed STRAIGHT_JOIN queue_messages m", "queue_messages_dedupe"),
        ("COALESCE(original_id, id)",),
    ):
        plan = the(plans, "SELECT", *parts)
        for access in plan.accesses:
            if access.table in ("queue_messages", "m"):
                assert access.key == "PRIMARY", str(plan)
            if access.table == "d":
                assert access.key == "queue_messages_dedupe", str(plan)


def test_what_is_due_is_found_by_its_time_among_many_that_wait(plans: list[Plan]) -> None:
    """Three statements find them: the tail's branch for due messages, the promotion, and the list."""
    tail = the(plans, "SELECT topic, `offset`, partition_key", "LIMIT 1000")
    assert "queue_messages_due" in {access.key for access in tail.accesses}, str(tail)
    for parts in (("LIMIT 500 FOR UPDATE SKIP LOCKED",), ("available_at >= %s",)):
        plan = the(plans, "FORCE INDEX (queue_messages_due)", *parts)
        (access,) = plan.accesses
        assert (access.key, access.type) == ("queue_messages_due", "range"), str(plan)
        assert plan.read <= 510, str(plan)


def test_a_scheduled_message_is_found_by_its_id_and_moved_by_its_key(plans: list[Plan]) -> None:
    for text in ("DELETE m FROM queue_messages m FORCE INDEX (queue_messages_dedupe)", "SET m.available_at"):
        plan = the(plans, text)
        assert {a.key for a in plan.accesses} <= {"queue_messages_dedupe", "PRIMARY"}, str(plan)
        assert plan.read <= 2, str(plan)
    moved = the(plans, "SELECT partition_key, id, consumer_group, payload", "ORDER BY available_at, `offset`")
    assert moved.read <= 5 * 500, str(moved)


def test_a_job_is_found_by_its_id_and_its_state_by_primary_key(plans: list[Plan]) -> None:
    for text, index in (
        ("m.topic IN", "queue_messages_dedupe"),
        ("m.original_id = %s", "queue_messages_due"),
    ):
        plan = the(plans, "s.errors, s.result", text)
        assert {access.key for access in plan.of("m")} == {index}, str(plan)
        assert {access.key for access in plan.of("s")} <= {"PRIMARY"}, str(plan)
        assert plan.read <= 5, str(plan)


def test_the_newest_job_of_a_key_is_the_last_in_the_index_of_ids(plans: list[Plan]) -> None:
    plan = the(plans, "ORDER BY m.id DESC LIMIT 1")
    assert {access.key for access in plan.of("m")} == {"queue_messages_dedupe"}, str(plan)
    assert plan.read <= 5, str(plan)


def test_whoever_is_registered_is_found_by_name(plans: list[Plan]) -> None:
    """``publish(group=…)`` looks it up in its one statement. Publishing many messages and redrive look it up first."""
    for part in ("IN (%s) AND topic", "LOCK IN SHARE MODE"):
        plan = the(plans, "SELECT consumer_group, id, offset_acked FROM queue_offsets", part)
        (access, *_) = (a for a in plan.accesses if a.table == "queue_offsets")
        assert access.key == "queue_offsets_partition", str(plan)
        assert plan.read <= 4, str(plan)


def test_partitions_without_an_owner_are_found_by_a_loose_scan(plans: list[Plan]) -> None:
    """The cost grows with the number of partitions, not with the number of messages."""
    plan = the(plans, "SELECT DISTINCT topic, partition_key")
    (access,) = plan.accesses
    assert access.key == "queue_messages_partition", str(plan)
    assert "Using index for group-by" in access.extra, str(plan)


def test_the_newest_message_of_a_partition_is_one_entry(plans: list[Plan]) -> None:
    """Three statements read it: for partitions without a lease row, for a page, for possibly empty partitions."""
    for part in (
        "WHERE l.id IS NULL AND (SELECT m.`offset`",
        "COALESCE(o.scan_offset, 0)",
        "SELECT p.partition_key, (",
    ):
        plan = the(plans, part, "JSON_TABLE")
        assert {(a.key, a.type) for a in plan.of("m")} == {("queue_messages_partition", "ref")}, str(plan)
        assert plan.read <= 10 * PARTITIONS, str(plan)


def test_boxes_are_found_by_their_offsets(plans: list[Plan]) -> None:
    for parts in (
        ("failure_count IS NULL", "FOR UPDATE SKIP LOCKED"),
        ("SELECT failure_count, payload", "partition_key = %s"),
        ("SELECT failure_count, payload", "FOR UPDATE SKIP LOCKED"),
        ("UPDATE queue_messages", "SET payload"),
        ("DELETE m FROM queue_messages m", "WHERE m.`offset` = %s"),
        ("m.original_id IS NULL) OR",),
    ):
        plan = the(plans, *parts)
        assert {a.key for a in (*plan.of("m"), *plan.of("queue_messages"))} == {"PRIMARY"}, str(plan)
        assert plan.read <= 10, str(plan)


def test_leftovers_are_found_a_page_at_a_time_in_the_order_of_the_index(plans: list[Plan]) -> None:
    plan = the(plans, "SELECT `offset`, available_at <=")
    (access,) = plan.accesses
    assert (access.key, access.type) == ("queue_messages_tail", "range"), str(plan)
    assert plan.read <= 2 * 500 + 10, str(plan)
    locked = the(plans, "m.available_at <=", "FOR UPDATE SKIP LOCKED")
    assert {(a.key, a.type) for a in locked.of("m")} == {("PRIMARY", "eq_ref")}, str(locked)
