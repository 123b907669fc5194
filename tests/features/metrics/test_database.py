"""The metrics of the database: they agree with ``inspect``, and their number and cost are bounded."""

from __future__ import annotations

import threading

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test import Client, override_settings

from django_mqueue import Subscription, pause, publish, subscribe, unsubscribe
from django_mqueue.metrics import DatabaseCollector, database, snapshot, views
from django_mqueue.models import Message, Offset, PartitionLease
from django_mqueue.spark.database import following
from django_mqueue.store.offsets import REMOVING
from tests.factories import HeartbeatFactory
from tests.support.many import insert_messages
from tests.support.processes import database_ms
from tests.support.statements import counted
from tests.support.subscribers import poll_until, settle
from tests.support.threads import Background
from tests.support.waiting import PATIENCE, wait_until

from .scraping import collected, parsed

pytestmark = pytest.mark.django_db(transaction=True)
BILLING = {"topic": "orders", "group": "billing"}
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def test_figures_of_topics_and_groups() -> None:
    subscribe("orders", "audit")
    subscribe("orders", "billing")
    for n in range(5):
        publish("orders", n, key=f"k{n}")
    publish("orders", 5, delay=600)
    with Subscription("orders", "billing") as subscription:
        first, second, third = poll_until(subscription, 5)[:3]
        first.ack()
        second.nack(delay=60, error="no")
        third.reject("never")
        found = collected()
    assert {
        status: found("mqueue_lag_messages", status=status, **BILLING)
        for status in ("pending", "in_flight", "waiting")
    } == {"pending": 0, "in_flight": 2, "waiting": 1}
    assert found("mqueue_lag_messages", topic="orders", group="audit", status="pending") == 5
    assert found("mqueue_dead_letters", **BILLING) == 1
    assert found("mqueue_workers", **BILLING) == 1
    assert found("mqueue_workers", topic="orders", group="audit") == 0
    assert found("mqueue_oldest_message_age_seconds", **BILLING) > 0
    assert found("mqueue_scheduled_messages", topic="orders") == 1
    assert found("mqueue_kept_messages", topic="orders") == 5
    assert found("mqueue_topic_groups", topic="orders") == 2
    assert found("mqueue_deletion_overdue_seconds", topic="orders") == 0
    assert found("mqueue_topics_left_out") == found("mqueue_groups_left_out") == 0
    assert found("mqueue_database_up") == 1
    pause("orders", "billing")
    assert collected()("mqueue_group_paused", **BILLING) == 1
    assert collected()("mqueue_group_paused", topic="orders", group="audit") == 0
    Offset.objects.filter(topic="orders", consumer_group="audit").update(scan_offset=REMOVING)
    assert collected()("mqueue_group_paused", topic="orders", group="audit") == 1


def test_a_group_that_keeps_old_messages_is_named_with_the_reason() -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    Message.objects.update(published_at=database_ms() - 3 * HOUR)
    found = collected()
    assert found("mqueue_deletion_overdue_seconds", topic="orders") == pytest.approx(7200, abs=60)
    assert found("mqueue_deletion_blocked_seconds", reason="no_worker", **BILLING) == pytest.approx(
        7200, abs=60
    )
    HeartbeatFactory.create(**{"topic": "orders", "consumer_group": "billing"})
    assert collected().values_of("mqueue_deletion_blocked_seconds", "reason") == {"pending"}


def test_a_group_that_reads_the_log_has_no_number_of_workers_between_two_runs() -> None:
    """Otherwise the alert about groups without workers would be raised for each archive."""
    following.follow("orders", "archive", 0, 0, using="default")
    assert "archive" not in collected().values_of("mqueue_workers", "group")
    HeartbeatFactory.create(topic="orders", consumer_group="archive")
    assert collected()("mqueue_workers", topic="orders", group="archive") == 1


def test_the_settled_lag_grows_until_a_worker_settles() -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    Message.objects.update(published_at=database_ms() - 100_000)
    assert collected()("mqueue_settled_lag_seconds", topic="orders") == pytest.approx(100, abs=30)
    with Subscription("orders", "billing") as subscription:
        poll_until(subscription, 1)
        settle(subscription)
        assert collected()("mqueue_settled_lag_seconds", topic="orders") == 0


def test_a_paused_group_with_a_worker_has_no_settled_lag() -> None:
    """Otherwise the alarm about an open transaction would be raised during each pause."""
    subscribe("orders", "billing")
    pause("orders", "billing")
    with Subscription("orders", "billing") as subscription:
        publish("orders", 1)

        def is_settled() -> bool:
            assert subscription.poll() == []
            return collected()("mqueue_settled_lag_seconds", topic="orders") == 0

        wait_until(is_settled, "the message is settled")


def test_a_count_that_stops_at_its_limit_says_so() -> None:
    subscribe("orders", "billing")
    publish("orders", 0)
    assert collected()("mqueue_lag_is_capped", **BILLING) == 0
    insert_messages("orders", 2_000, 10)
    found = collected()
    assert found("mqueue_lag_is_capped", **BILLING) == 1
    assert found("mqueue_lag_messages", status="pending", **BILLING) >= 1_000


def test_labels_are_never_keys_or_partitions() -> None:
    subscribe("orders", "billing")
    for n in range(20):
        publish("orders", n, key=f"customer-{n}")
    found = collected()
    assert {name for _, labels in found for name, _ in labels} <= {"topic", "group", "status", "reason"}
    assert len(found) < 30


def test_the_number_of_series_is_bounded_and_the_worst_topics_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of six topics, the three that look worst have metrics: two without a worker, one of them without a group."""
    monkeypatch.setattr(snapshot, "TOPICS_MAX", 3)
    monkeypatch.setattr(snapshot, "GROUPS_MAX", 3)
    for name in "abcde":
        subscribe(name, "g")
        publish(name, 1)
    publish("f", 1)
    for name in "acde":
        HeartbeatFactory.create(topic=name, consumer_group="g", heartbeat_at=database_ms() + HOUR)
    found = collected()
    assert found.values_of("mqueue_kept_messages", "topic") == {"f", "b", "a"}
    assert found.values_of("mqueue_workers", "topic") == {"b", "a"}
    assert found("mqueue_topics_left_out") == 3
    assert found("mqueue_groups_left_out") == 3


def statements_of_a_scrape(topics: int, partitions: int) -> int:
    """Return the number of statements for topics with as many partitions each, all with a lease row."""
    for n in range(topics):
        subscribe(f"orders-{n}", "g")
        insert_messages(f"orders-{n}", 8_000, partitions, published_at=str(database_ms()))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_partition_leases (consumer_group, topic, partition_key, leased_by, holder, leased_at,"
            " lease_renewed_at) SELECT DISTINCT 'g', topic, partition_key, '', '', 1, 1 FROM queue_messages"
        )
        for table in ("queue_messages", "queue_partition_leases"):
            cursor.execute(f"ANALYZE TABLE {table}")
            cursor.fetchall()
    with counted() as cost:
        collected()
    Message.objects.all().delete()
    PartitionLease.objects.all().delete()
    for n in range(topics):
        unsubscribe(f"orders-{n}", "g")
    return cost.count


@pytest.mark.exhaustive
def test_the_cost_of_a_scrape_is_bounded_for_any_number_of_partitions_and_groups() -> None:
    """At most 3,000 partitions are read, of all groups together, 200 in a statement."""
    few, *many = (statements_of_a_scrape(2, partitions) for partitions in (10, 2_000, 8_000))
    assert few <= 40
    assert max(many) <= 100
    assert statements_of_a_scrape(6, 2_000) <= 100


def test_the_figures_are_cached_for_some_seconds() -> None:
    subscribe("orders", "billing")
    collector = DatabaseCollector(max_age=60)
    collected(collector)
    publish("orders", 1)
    with counted() as cost:
        assert collected(collector)("mqueue_lag_messages", status="pending", **BILLING) == 0
    assert cost.count == 0
    assert collected()("mqueue_lag_messages", status="pending", **BILLING) == 1


def test_without_its_database_a_scrape_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line is logged for each outage."""
    collector = DatabaseCollector(max_age=0)

    def refuse(*args: object) -> None:
        raise OperationalError(2013, "Lost connection")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", refuse)
        found = collected(collector)
        collected(collector)
    assert dict(found) == {("mqueue_database_up", frozenset()): 0}
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: the database could not be read: (2013, 'Lost connection')"
    ]
    assert collected(collector)("mqueue_database_up") == 1


def test_while_a_scrape_hangs_the_others_say_that_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert database.WAIT < 10, "the default scrape_timeout of Prometheus"
    collector, hangs, leave = DatabaseCollector(max_age=0), threading.Event(), threading.Event()

    def hang(*args: object) -> None:
        hangs.set()
        leave.wait(PATIENCE)
        raise OperationalError(2013, "Lost connection")

    monkeypatch.setattr(database, "snapshot", hang)
    monkeypatch.setattr(database, "WAIT", 0.1)
    with Background(lambda: collected(collector)) as first:
        assert hangs.wait(PATIENCE)
        assert dict(collected(collector)) == {("mqueue_database_up", frozenset()): 0}
        leave.set()
        first.result()


@override_settings(ROOT_URLCONF="tests.features.metrics.urls")
def test_the_view_needs_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``ATOMIC_REQUESTS``, Django begins one before it calls a view, also if the database is away."""

    def refuse() -> None:
        raise OperationalError(2002, "Can't connect")

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    monkeypatch.setattr(views, "_collectors", {})
    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "connect", refuse)
        response = Client().get("/metrics")
    assert parsed(response.content.decode())("mqueue_database_up") == 0


@override_settings(ROOT_URLCONF="tests.features.metrics.urls")
def test_the_view_returns_the_metrics_of_the_database_alone() -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    response = Client().get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert "no-store" in response.headers["Cache-Control"]
    found = parsed(response.content.decode())
    assert found("mqueue_lag_messages", status="pending", **BILLING) == 1
    assert found.names & {"mqueue_messages_finished_total", "process_cpu_seconds_total"} == set()
    assert Client().post("/metrics").status_code == 405
    assert Client().get("/secret-metrics").status_code == 403
    secret = Client(headers={"Authorization": "Bearer s3cret"})
    assert secret.get("/secret-metrics").status_code == 200
