"""The lists of all tables: readable rows, escaped texts."""

from __future__ import annotations

import pytest
from django.test import Client, override_settings

from django_mqueue import Reject, Subscription, publish
from django_mqueue.models import Offset

from .looking import first_shown, html_of, listed
from .rows import (
    FAR,
    NOON,
    PAGES,
    dead_letter,
    delivery,
    heartbeat,
    lease,
    list_url,
    message,
    offset,
    one_of_each,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("page", PAGES)
def test_each_table_has_a_list(admin_client: Client, page: str) -> None:
    one_of_each()
    (row,) = listed(admin_client, page)
    assert row["topic"] == "orders"


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_table_has_one_too(admin_client: Client, page: str) -> None:
    assert listed(admin_client, page) == []


def test_messages_come_newest_first(admin_client: Client) -> None:
    offsets = [message().offset for _ in range(3)]
    assert [int(row["offset"]) for row in listed(admin_client, "message")] == offsets[::-1]


def test_times_are_dates_of_the_current_time_zone(admin_client: Client) -> None:
    message()
    assert listed(admin_client, "message")[0]["published_short"] == "2026-01-01 12:00:00"
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        assert listed(admin_client, "message")[0]["published_short"] == "2026-01-01 21:00:00"
        assert first_shown(admin_client, "message")["published"] == "2026-01-01 21:00:00.123 JST"


def test_times_beyond_the_calendar_are_numbers(admin_client: Client) -> None:
    lease(leased_at=2**62)
    assert listed(admin_client, "partitionlease")[0]["leased_short"] == str(2**62)


def test_a_message_beyond_the_calendar_has_its_end(admin_client: Client) -> None:
    message(published_at=2**62)
    assert listed(admin_client, "message")[0]["published_short"] == "253402300800000"
    assert first_shown(admin_client, "message")["published"] == "253402300800000"


def test_payloads_are_escaped_and_cut(admin_client: Client) -> None:
    """The list shows the escaped beginning of a payload of any size."""
    message(payload={"html": "<script>alert(1)</script>", "pad": "😀" * 250_000})
    html = html_of(admin_client, list_url("message"))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert len(html) < 40_000
    cell = listed(admin_client, "message")[0]["payload_head"]
    assert cell.startswith('{"html": "<script>alert(1)</script>", "pad": "😀')
    assert cell.endswith("…")
    assert len(cell) < 120


def test_bytes_are_shown_as_length_and_hexadecimal(admin_client: Client) -> None:
    message(payload=bytes(range(256)) * 8)
    message(payload=b"\xff")
    message(payload=b"")
    cells = [row["payload_head"] for row in listed(admin_client, "message")]
    assert cells == ["0 bytes:", "1 byte: ff", "2,048 bytes: 00 01 02 03 04 05 06 07 08 09 0a 0b…"]


def test_keyless_partitions_are_not_taken_for_keys(admin_client: Client) -> None:
    message(partition_key=" 0007")
    assert listed(admin_client, "message")[0]["key"] == "no key"
    assert first_shown(admin_client, "message")["key"] == "keyless 0007"


def test_dead_letters_tell_who_gave_up_and_why(admin_client: Client) -> None:
    dead_letter()
    message()
    assert [row["failure"] for row in listed(admin_client, "message", derived="on")] == [
        "-",
        "billing: ValueError: no such order",
    ]


def test_states_of_deliveries(admin_client: Client) -> None:
    """The state depends on the database's clock: NOON is past, FAR is in the future."""
    delivery(message_offset=1, acked=True, handed=True)
    delivery(message_offset=2, in_flight=True, handed=True)
    delivery(message_offset=3, in_flight=True, handed=True, invisible_until=NOON)
    delivery(message_offset=4, retry_count=2, handed=True)
    delivery(message_offset=5, invisible_until=NOON)
    rows = listed(admin_client, "deliverystate")
    assert [row["state"] for row in rows] == ["done", "in flight", "overdue", "waits", "due"]
    assert [row["attempts"] for row in rows] == ["1", "1", "1", "3", "0"]


def test_states_of_leases(admin_client: Client) -> None:
    lease(partition_key="a")
    lease(partition_key="b", lease_renewed_at=NOON)
    lease(partition_key="c", leased_by="", holder="")
    rows = listed(admin_client, "partitionlease")
    assert [(row["state"], row["owner"]) for row in rows] == [
        ("held", "worker-1"),
        ("expired", "worker-1"),
        ("free", "-"),
    ]


def test_states_of_subscribers(admin_client: Client) -> None:
    heartbeat(subscriber_name="a")
    heartbeat(subscriber_name="b", heartbeat_at=NOON)
    heartbeat(subscriber_name="c", deregistered_at=FAR)
    heartbeat(subscriber_name="d", deregistered_at=FAR, session_lock="that of a killed worker")
    assert [row["state"] for row in listed(admin_client, "subscriberheartbeat")] == [
        "alive",
        "silent",
        "left",
        "silent",
    ]


def test_the_protocols_own_offsets_are_apart(admin_client: Client) -> None:
    """The list hides the gate's rows, labels registrations, and shows the topics' own rows separately."""
    offset()
    offset(partition_key="", offset_acked=0)
    offset(consumer_group="", partition_key="", offset_acked=99, updated_at=0)
    assert Offset.objects.filter(consumer_group="", topic="").count() > 100
    rows = listed(admin_client, "offset")
    assert [(row["partition"], row["group"], row["status"]) for row in rows] == [
        ("registration", "billing", "active"),
        ("customer-1", "billing", "-"),
    ]
    (row,) = listed(admin_client, "offset", whose="topics")
    assert (row["topic"], row["group"], row["offset_acked"], row["updated_short"]) == (
        "orders",
        "-",
        "99",
        "-",
    )
    assert row["partition"].startswith("topic: settled offset")


@pytest.mark.django_db(transaction=True)
def test_what_the_queue_itself_writes(admin_client: Client) -> None:
    """The lists show what publish, ack, nack and reject have written."""
    for number in range(3):
        publish("orders", {"order": number}, key="customer-1", id=f"order-{number}")
    with Subscription("orders", group="billing", name="worker-1") as subscription:
        done, failed, rejected = subscription.poll()
        done.ack()
        failed.nack(delay=600, error="TimeoutError: later\n\nTraceback")
        rejected.reject(str(Reject("no such customer")))
        assert [row["state"] for row in listed(admin_client, "partitionlease")] == ["held"]
        assert [row["state"] for row in listed(admin_client, "subscriberheartbeat")] == ["alive"]
    states = listed(admin_client, "deliverystate")
    assert [(row["state"], row["last_error"]) for row in states] == [
        ("done", "-"),
        ("waits", "TimeoutError: later"),
        ("dead-lettered", "no such customer"),
    ]
    (letter,) = [row for row in listed(admin_client, "message", derived="on") if row["topic"] == "orders_dlq"]
    assert letter["failure"] == "billing: no such customer"
    assert [row["state"] for row in listed(admin_client, "partitionlease")] == ["free"]
    assert [row["state"] for row in listed(admin_client, "subscriberheartbeat")] == ["left"]
    assert listed(admin_client, "offset")[0]["partition"] == "registration"
