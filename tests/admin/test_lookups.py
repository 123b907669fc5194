"""Searches in the lists: only exact values that an index serves."""

from __future__ import annotations

import pytest
from django.test import Client

from .looking import html_of, ids, listed
from .rows import PAGES, dead_letter, delivery, heartbeat, lease, list_url, message, offset

pytestmark = pytest.mark.django_db


@pytest.fixture
def _messages() -> None:
    message(message_id="a", partition_key="customer-1")
    message(message_id="b", partition_key="customer-2")
    message(message_id="a", partition_key="customer-2")
    message(message_id="a", partition_key=" 0003")
    message(message_id="a", topic="orders-2")
    message(message_id="A", topic="Orders")


@pytest.mark.usefixtures("_messages")
def test_messages_by_topic_key_and_id(admin_client: Client) -> None:
    """A search is exact: no prefixes, case-sensitive. An id is found in every partition of its topic."""
    assert ids(admin_client) == ["A", "a", "a", "a", "b", "a"]
    assert ids(admin_client, topic="orders") == ["a", "a", "b", "a"]
    assert ids(admin_client, topic="order") == []
    assert ids(admin_client, topic="Orders") == ["A"]
    assert ids(admin_client, topic="orders", key="customer-2") == ["a", "b"]
    assert ids(admin_client, topic="orders", id="a") == ["a", "a", "a"]
    assert ids(admin_client, topic="orders", id="A") == []
    assert ids(admin_client, topic="orders", key="customer-2", id="a") == ["a"]
    assert ids(admin_client, topic="orders", key="customer-1", id="b") == []


def test_a_dead_letter_by_its_original_id(admin_client: Client) -> None:
    dead_letter()
    dead_letter(message_id="7:reports", failed_group="reports")
    asked = {"topic": "orders", "status": "dead", "group": "reports", "id": "order-7"}
    rows = listed(admin_client, "message", **asked)
    assert [row["failure"] for row in rows] == ["reports: ValueError: no such order"]


def test_delivery_state_by_the_parts_of_its_key(admin_client: Client) -> None:
    for number in (1, 2, 3):
        delivery(message_offset=number)
    delivery(consumer_group="reports", message_offset=1)
    delivery(topic="mails", message_offset=2)
    narrow = {"consumer_group": "billing"}
    assert len(listed(admin_client, "deliverystate", **narrow)) == 4
    narrow["topic"] = "orders"
    assert len(listed(admin_client, "deliverystate", **narrow)) == 3
    narrow |= {"partition_key": "customer-1", "message_offset__gte": "2"}
    rows = listed(admin_client, "deliverystate", **narrow)
    assert [row["offset"] for row in rows] == ["2", "3"]


@pytest.mark.parametrize("page", ["partitionlease", "offset", "subscriberheartbeat"])
def test_the_small_tables_by_group_topic_and_name(admin_client: Client, page: str) -> None:
    last = "subscriber_name" if page == "subscriberheartbeat" else "partition_key"
    make = {"partitionlease": lease, "offset": offset, "subscriberheartbeat": heartbeat}[page]
    for group in ("billing", "reports"):
        for topic in ("orders", "mails"):
            for name in ("a", "b"):
                make(consumer_group=group, topic=topic, **{last: name})
    assert len(listed(admin_client, page)) == 8
    assert len(listed(admin_client, page, consumer_group="billing")) == 4
    assert len(listed(admin_client, page, consumer_group="billing", topic="mails")) == 2
    narrow = {"consumer_group": "billing", "topic": "mails", last: "b"}
    assert len(listed(admin_client, page, **narrow)) == 1


@pytest.mark.parametrize(
    ("page", "parameters", "said"),
    [
        ("deliverystate", {"message_offset__gte": "many"}, "From offset was left out: it also needs Key."),
        ("deliverystate", {"partition_key": "x"}, "Key was left out: it also needs Topic."),
    ],
)  # fmt: skip
def test_what_no_index_serves_is_left_out(
    admin_client: Client, page: str, parameters: dict[str, str], said: str
) -> None:
    """The page says which field it ignored, and keeps the typed text."""
    html = html_of(admin_client, list_url(page), parameters)
    assert said in html
    assert all(f'value="{value}"' in html for value in parameters.values())


def test_a_look_up_that_lacks_something_that_lacks_something(admin_client: Client) -> None:
    """With a key but no topic, the page ignores the key and also the offset that needs the key."""
    message()
    html = html_of(
        admin_client, list_url("deliverystate"), {"partition_key": "x", "message_offset__gte": "1"}
    )
    assert "Key was left out" in html
    assert "From offset was left out" in html


@pytest.mark.parametrize("page", [page for page in PAGES if page != "message"])
@pytest.mark.parametrize(
    "lookup",
    ["topic__contains", "topic__gt", "consumer_group__in", "payload__contains", "pk", "id", "no_such"],
)
def test_other_lookups_are_refused(admin_client: Client, page: str, lookup: str) -> None:
    """Other lookups would read the whole table."""
    assert admin_client.get(list_url(page), {lookup: "x"}).status_code == 400


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("message", "subscriberheartbeat")])
def test_pages_keep_what_was_looked_up(admin_client: Client, page: str) -> None:
    """A blank field is no condition. Markup in a field is escaped."""
    html = html_of(
        admin_client, list_url(page), {"topic": '"><script>', "partition_key": "", "p": "1", "o": "1.-2"}
    )
    assert "<script>&" not in html
    assert "&quot;&gt;&lt;script&gt;" in html


def test_delivery_state_by_topic_and_key_of_all_groups(admin_client: Client) -> None:
    delivery(partition_key="customer-1")
    delivery(partition_key="customer-2", message_offset=43)
    delivery(consumer_group="stock", partition_key="customer-1")
    of = {"topic": "orders", "partition_key": "customer-1"}
    assert len(listed(admin_client, "deliverystate", **of)) == 2
    assert listed(admin_client, "deliverystate", **of, message_offset__gte="43") == []


def test_the_row_of_a_topic_is_found_by_its_name(admin_client: Client) -> None:
    offset(consumer_group="", topic="orders", partition_key="")
    offset(consumer_group="", topic="mail", partition_key="")
    assert len(listed(admin_client, "offset", whose="topics", topic="orders")) == 1
