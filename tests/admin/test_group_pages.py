"""The pages of a group's partitions and subscribers, and the links to their operations."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from django_mqueue import OutgoingMessage, Subscription, pause, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.factories import LeaseFactory
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, poll_until

from .looking import html_of, text
from .operating import hidden, staff, staff_client, url_of
from .rows import heartbeat

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
OF = {"topic": TOPIC, "group": GROUP}
_ROW = re.compile(r"<tr>(.*?)</tr>", re.S)
_CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.S)


kept = with_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "RETENTION": 3600})
client = staff_client(
    "view_offset", "view_partitionlease", "view_subscriberheartbeat", "view_consumergroup", "view_message",
    "release_partitionlease",
)  # fmt: skip


def tables(client: Client, page: str, **asked: Any) -> list[list[list[str]]]:
    """Return the cell texts of each table, row by row."""
    html = html_of(client, url_of(page), {**OF, **asked}).partition('id="mqueue-main"')[2]
    bodies = re.findall(r"<tbody>(.*?)</tbody>", html, re.S)
    return [
        [[" ".join(text(cell).split()) for cell in _CELL.findall(row)] for row in _ROW.findall(body)]
        for body in bodies
    ]


def test_partitions_and_who_works_on_them(client: Client) -> None:
    publish_many(TOPIC, [OutgoingMessage(n, key="abc"[n % 3]) for n in range(6)])
    with Subscription(TOPIC, GROUP, "worker-1") as subscription:
        poll_until(subscription, 6)[0].ack()
        PartitionLease.objects.filter(partition_key="b").update(lease_renewed_at=1)
        (rows,) = tables(client, "group_partitions")
        assert [(row[0], row[1], row[5], row[6], row[9]) for row in rows] == [
            ("a", "1", "held", "worker-1", "1"),
            ("b", "2", "expired", "worker-1", "2"),
            ("c", "2", "held", "worker-1", "2"),
        ]
        assert [row[0] for row in tables(client, "group_partitions", key="b")[0]] == ["b"]
        assert len(tables(client, "group_partitions", subscriber="worker-1")[0]) == 3
        assert tables(client, "group_partitions", subscriber="worker-2")[0] == [["No partition matches."]]


def test_partitions_are_walked_page_by_page(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    PartitionLease.objects.bulk_create(
        LeaseFactory.build(topic=TOPIC, consumer_group=GROUP, partition_key=f"k{number:04d}")
        for number in range(120)
    )
    seen, url, pages = [], f"{url_of('group_partitions')}?topic={TOPIC}&group={GROUP}", 0
    while url:
        html = client.get(url).content.decode()
        seen += re.findall(r'<th scope="row"><span class="mqueue-name">(k\d+)</span>', html)
        found = re.search(r'<a href="([^"]+)" rel="next">', html)
        url, pages = (unescape(found[1]) if found else ""), pages + 1
    assert (len(seen), len(set(seen)), pages) == (120, 120, 3)


def test_subscribers_and_what_each_does_now(client: Client) -> None:
    first = publish(TOPIC, 1, key="k", id="order-1", kind="order.made")
    with Subscription(TOPIC, GROUP, "worker-1") as subscription:
        poll_until(subscription, 1)
        heartbeat(topic=TOPIC, consumer_group=GROUP, subscriber_name="worker-2", heartbeat_at=1)
        heartbeat(topic=TOPIC, consumer_group=GROUP, subscriber_name="worker-3", deregistered_at=2)
        members, in_hand = tables(client, "group_subscribers")
        assert [(row[0], row[1], row[3], row[4]) for row in members] == [
            ("worker-1", "alive", "1 partition of worker-1", "1"),
            ("worker-2", "silent", "0", "0"),
            ("worker-3", "left", "0", "0"),
        ]
        ((message, key, kind, attempt, who, busy, _, state),) = in_hand
        assert (message, key, kind, attempt, who, state) == (
            f"{first.offset} order-1", "k", "order.made", "1", "worker-1", "a handler runs",
        )  # fmt: skip
        assert busy.endswith("s")
        DeliveryState.objects.update(invisible_until=1, alone=True)
        assert tables(client, "group_subscribers", subscriber="worker-1")[1][0][-1] == "overdue quarantined"
        assert tables(client, "group_subscribers", subscriber="worker-2")[1] == [
            ["No messages are in flight."]
        ]
        PartitionLease.objects.update(leased_by="", holder="")
        assert tables(client, "group_subscribers")[1][0][-1].startswith("lease lost: will be delivered again")


def test_what_can_be_done_is_offered_by_right_and_by_how_it_stands() -> None:
    subscribe(TOPIC, GROUP)
    rights = (
        "view_consumergroup", "pause_consumergroup", "resume_consumergroup", "reset_consumergroup", "view_topic",
        "pause_topic", "resume_topic",
    )  # fmt: skip
    client, onlooker = staff(*rights), staff("view_consumergroup", "view_topic", name="onlooker")

    def offered(one: Client) -> set[str]:
        html = "".join(one.get(url_of(page), OF).content.decode() for page in ("group", "topic"))
        every = ("pause_group", "resume_group", "reset_group", "pause_topic", "resume_topic", "group_partitions",
                 "group_subscribers")  # fmt: skip
        return {page for page in every if f'href="{url_of(page)}?' in html}

    assert offered(client) == {"pause_group", "reset_group", "pause_topic"}
    pause(TOPIC, GROUP)
    assert offered(client) == {"resume_group", "reset_group", "resume_topic"}
    subscribe(TOPIC, "stock")
    assert offered(client) == {"resume_group", "reset_group", "pause_topic", "resume_topic"}
    assert offered(onlooker) == set()


@pytest.mark.parametrize(
    ("page", "rights"),
    [
        ("group_partitions", ("view_offset", "view_partitionlease")),
        ("group_subscribers", ("view_subscriberheartbeat",)),
    ],
)
def test_each_page_needs_its_rights(page: str, rights: tuple[str, ...]) -> None:
    subscribe(TOPIC, GROUP)
    assert staff(*rights).get(url_of(page), OF).status_code == 200
    for number, right in enumerate(rights):
        others = staff("view_message", *(one for one in rights if one != right), name=f"other{number}")
        assert others.get(url_of(page), OF).status_code == 403


@pytest.mark.parametrize("page", ["group_partitions", "group_subscribers"])
@pytest.mark.parametrize("asked", [{}, {"topic": "or\nders", "group": "x"}, {"topic": TOPIC, "group": ""}])
def test_pages_of_nothing(client: Client, page: str, asked: dict[str, str]) -> None:
    assert client.get(url_of(page), asked).status_code == 404


def test_a_group_that_is_not_registered_has_no_partitions(client: Client) -> None:
    response = client.get(url_of("group_partitions"), OF)
    assert response.status_code == 404
    assert "is not registered" in text(response.content.decode())


def test_odd_names_are_shown_and_led_to(client: Client) -> None:
    for name in ('a/b//c"it\'s"', "100%2F?a=b&c#d;,", "<b>bold</b> 😀 Ünï", "..", "back\\slash[1]+-.~"):
        SubscriberHeartbeat.objects.all().delete()
        shown_and_led_to(client, name)


def shown_and_led_to(client: Client, name: str) -> None:
    topic = name[:100]
    subscribe(topic, name)
    publish(topic, 1, key=name, kind=name, id=name)
    with Subscription(topic, name, name) as subscription:
        poll_until(subscription, 1)
        of = {"topic": topic, "group": name}
        found: set[str] = set()
        for page in ("group_subscribers", "group_partitions"):
            html = client.get(url_of(page), {**of, "subscriber": name}).content.decode()
            assert "<b>bold" not in html
            found |= set(re.findall(r'href="(/[^"]+)"', html.partition('id="mqueue-main"')[2]))
        assert len(found) > 3
        assert {client.get(unescape(href)).status_code for href in found} == {200}
    assert SubscriberHeartbeat.objects.count() == 1


def test_the_search_keeps_names_that_are_shown_escaped(client: Client) -> None:
    of = {"topic": "orders\u202e", "group": "billing\u202e"}
    subscribe(of["topic"], of["group"])
    assert hidden(html_of(client, url_of("group_partitions"), of)) == of


def test_rows_of_the_tables_lead_there_by_right() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, "worker-1") as subscription:
        poll_until(subscription, 1)
        client = staff(
            "view_offset", "view_partitionlease", "view_subscriberheartbeat", "release_partitionlease"
        )
        onlooker = staff("view_partitionlease", "view_subscriberheartbeat", name="onlooker")
        pages = ("group_partitions", "group_subscribers", "release_leases")
        for page, expected, fewer in (
            ("offset", {"group_partitions"}, None),
            ("partitionlease", {"group_partitions", "release_leases"}, set()),
            ("subscriberheartbeat", {"group_subscribers"}, {"group_subscribers"}),
        ):
            for one, offered in ((client, expected), (onlooker, fewer)):
                response = one.get(url_of(f"{page}_changelist"))
                assert response.status_code == (403 if offered is None else 200)
                rows = response.content.decode().partition('id="result_list"')[2]
                found = [unescape(href) for href in re.findall(r'field-more"><a href="([^"]+)"', rows)]
                found += [unescape(href) for href in re.findall(r', <a href="([^"]+)"', rows)]
                assert {name for name in pages for url in found if url.startswith(url_of(name))} == (
                    offered or set()
                )
                assert {one.get(url).status_code for url in found} <= {200}
