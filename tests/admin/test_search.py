"""Search in the admin: one box for all topics, lists of names, unknown topics, paths, last errors, hidden topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.test import Client, override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.admin.messages import message_list
from django_mqueue.browse import message_search
from django_mqueue.models import DeliveryState, Message, PartitionLease
from django_mqueue.policy.filters import payload_path
from tests.support.subscribers import QUICK, poll_until

from .dead_letters import TOPIC, give_up, outgoing, table
from .looking import html_of, listed, text
from .operating import staff_client, url_of
from .rows import list_url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    cache.clear()
    with override_settings(MQUEUE={**QUICK, "RETENTION": 3600}):
        yield


client = staff_client(
    "view_message", "view_deadletter", "view_partitionlease", "view_deliverystate", "view_topic",
    "view_offset", "view_subscriberheartbeat",
)  # fmt: skip


def found(client: Client, **asked: str) -> list[tuple[str, str]]:
    """Return (topic, id) of the messages on the list."""
    return [(row.get("topic", ""), row["id_cell"]) for row in listed(client, "message", **asked)]


def test_one_box_finds_ids_keys_and_offsets_in_all_topics(client: Client) -> None:
    publish("orders", 1, id="order-7", key="customer-1")
    publish("mails", 2, id="order-7")
    publish("mails", 3, id="other", key="order-7")
    offset = publish("payments", 4, id="pay").offset
    publish("orders", 5, id="late", key="customer-1", delay=3600)
    give_up(OutgoingMessage(6, id="dead-1", key="customer-2"), topic="stock")
    assert found(client, find="order-7") == [
        ("mails", "other"), ("mails", "order-7"), ("orders", "order-7"),
    ]  # fmt: skip
    assert found(client, find=str(offset)) == [("payments", "pay")]
    assert found(client, find="customer-1") == [("orders_scheduled", "late"), ("orders", "order-7")]
    assert ("stock_dlq", "dead-1") in found(client, find="dead-1")
    assert found(client, find="order-7", topic="mails") == [("mails", "other"), ("mails", "order-7")]
    assert found(client, find="nothing") == []
    html = html_of(client, list_url("message"), {"find": "order-7", "status": "dead"})
    assert "leave all other fields except the topic empty" in html


def test_the_box_shows_only_what_the_user_may_see(client: Client) -> None:
    publish("orders", {"card": "5105105105105100"}, id="order-7")

    def broken(message: object) -> object:
        raise LookupError

    with override_settings(MQUEUE={**QUICK, "MASK": broken}):
        assert "5105105105105100" not in html_of(client, list_url("message"), {"find": "order-7"})


def test_forms_offer_the_topics_and_groups(client: Client) -> None:
    subscribe("orders", "billing")
    subscribe("mails", "sender")
    give_up(1)
    cache.clear()
    for url, asked in (
        (list_url("message"), {}),
        (list_url("partitionlease"), {}),
        (list_url("deliverystate"), {}),
        (url_of("deadletter_list"), {"topic": TOPIC}),
    ):
        html = html_of(client, url, asked)
        for name in ("orders", "mails", "billing", "sender"):
            assert f'<option value="{name}">' in html, url
        assert 'list="mqueue-groups"' in html, url
    assert 'list="mqueue-topics"' in html_of(client, list_url("message"))


@pytest.mark.parametrize("page", ["message", "partitionlease", "deliverystate", "offset", "deadletter"])
def test_an_unknown_topic_is_said_plainly(client: Client, page: str) -> None:
    publish("orders", 1)
    give_up(1)
    url = url_of("deadletter_list") if page == "deadletter" else list_url(page)
    html = text(html_of(client, url, {"topic": "oders"}))
    assert "There is no topic oders. Similar names: orders" in html
    html = text(html_of(client, url, {"topic": "qqqqqqqq"}))
    assert "There is no topic qqqqqqqq." in html
    assert "Similar names" not in html
    assert "There is no topic" not in text(html_of(client, url, {"topic": "orders"}))


def test_an_unknown_topic_with_a_group(client: Client) -> None:
    """The page names the topic, not the group, which is not registered for a topic that does not exist."""
    publish("orders", 1)
    html = text(html_of(client, list_url("message"), {"topic": "oders", "group": "billing"}))
    assert "There is no topic oders." in html
    assert "not registered" not in html
    html = text(html_of(client, list_url("message"), {"topic": "orders", "group": "billing"}))
    assert "not registered" in html


def test_paths_in_several_notations(client: Client) -> None:
    for path in ("customer.id", "customer__id", "$.customer.id", "payload__customer__id"):
        assert payload_path(path) == "payload__customer__id"
    assert payload_path("$.items[0].id") == payload_path("items.0.id") == "payload__items__0__id"
    assert payload_path("$[0]") == "payload__0"
    assert payload_path("$5") == "payload__$5"
    publish_many("orders", outgoing(3))
    give_up(*(OutgoingMessage({"items": [{"n": n}]}, id=f"dead-{n}") for n in range(2)), topic="stock")
    for path in ("$.customer.id", "payload__customer__id", "customer.id"):
        assert found(client, topic="orders", path=path, value="1") == [("", "order-1")]
        assert found(client, topic="orders", path="$", value="1") == []
    rows = table(client, "deadletter_list", topic="stock", path="$.items[0].n", value="1")
    assert ["dead-1" in row for row in rows] == [True]


def test_the_last_error_is_shown_without_a_group(client: Client) -> None:
    """Of the groups, the one whose attempt failed last. The message's page also shows it."""
    for group in ("billing", "stock"):
        subscribe("orders", group)
    offset = publish("orders", 1, key="k").offset
    publish("orders", 2, key="k")
    for group, error in (("billing", "shop.errors.Declined: 1"), ("stock", "KeyError: x")):
        with Subscription("orders", group) as subscription:
            poll_until(subscription, 2)[0].nack(error=error, delay=60)
    assert [row["failure"] for row in listed(client, "message", topic="orders")] == [
        "-",
        "stock: KeyError: x",
    ]
    assert [row["failure"] for row in listed(client, "message")] == ["-", "stock: KeyError: x"]
    (first, _) = listed(client, "message", topic="orders", group="billing")[::-1]
    assert first["failure"] == "Declined: 1"
    html = html_of(client, list_url("message"), {"topic": "orders", "group": "billing"})
    assert 'title="shop.errors.Declined: 1"' in html
    html = text(html_of(client, url_of("message_change", offset)))
    assert "Last error, of group stock," in html
    assert "Last error: none." in text(html_of(client, url_of("message_change", offset + 1)))


def test_derived_topics_are_hidden_unless_asked_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish("orders", 1, id="order-1")
    publish("orders", 2, id="late", delay=3600)
    give_up(OutgoingMessage(3, id="dead"))
    subscribe("orders_dlq", "clerk")
    hidden = {("orders_dlq", "dead"), ("orders_scheduled", "late")}
    shown = found(client)
    assert ("orders", "order-1") in shown
    assert not hidden & set(shown)
    assert "mqueue_actions" not in {topic for topic, _ in shown}
    every = found(client, derived="on")
    assert hidden < set(every)
    assert "mqueue_actions" in {topic for topic, _ in every}
    assert "order-1" in [row["id_cell"] for row in listed(client, "message", topic="orders")]
    assert [id for _, id in found(client, topic="orders_dlq")] == ["dead", "order-1"]
    # A page that reads only hidden messages is empty, and continues.
    give_up(*(OutgoingMessage(n, id=f"new-{n}") for n in range(8)))
    monkeypatch.setattr(message_search, "CHUNK", 3)
    monkeypatch.setattr(message_search, "NEWEST_READ", 3)
    html = html_of(client, list_url("message"))
    assert "No match so far." in text(html)
    assert "Search further" in text(html)
    topics = html_of(client, url_of("topic_changelist"))
    assert 'topic=orders"' in topics
    assert "orders_dlq" not in topics
    assert "orders_dlq" in html_of(client, url_of("topic_changelist"), {"derived": "1"})


@pytest.mark.parametrize(
    ("page", "name"),
    [("partitionlease", "key"), ("deliverystate", "offset"), ("subscriberheartbeat", "group")],
)
def test_tables_by_topic_alone(client: Client, page: str, name: str) -> None:
    for topic in ("orders", "mails"):
        for group in ("billing", "stock"):
            subscribe(topic, group)
        publish_many(topic, [OutgoingMessage(n, key=f"k{n}") for n in range(2)])
        for group in ("billing", "stock"):
            with Subscription(topic, group, name=f"w-{group}") as subscription:
                poll_until(subscription, 2)
    assert DeliveryState.objects.count() == 8
    assert PartitionLease.objects.count() == 8
    rows = listed(client, page, topic="orders")
    assert {row["topic"] for row in rows} == {"orders"}
    assert [row["group"] for row in rows] == sorted(row["group"] for row in rows)
    assert {row["group"] for row in rows} == {"billing", "stock"}
    assert len(rows) == (2 if page == "subscriberheartbeat" else 4)
    assert all(row[name] for row in rows)
    if page == "deliverystate":
        # The offset needs a key, and a key needs a group.
        html = text(html_of(client, list_url(page), {"topic": "orders", "partition_key": "k1"}))
        assert "Key was left out" not in html
    assert Message.objects.filter(topic="orders").count() == 2


def test_a_list_that_is_cut_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_list, "ROWS", 2)
    publish_many(TOPIC, [OutgoingMessage(number, key="k") for number in range(3)])
    page = text(html_of(client, url_of("message_changelist") + "?find=k"))
    assert "Only the newest 2 are listed." in page
    assert "End of the list." not in page
    publish(TOPIC, 1, key="other")
    assert "End of the list." in text(html_of(client, url_of("message_changelist") + "?find=other"))
