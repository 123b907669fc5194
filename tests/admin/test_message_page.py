"""The page of one message: its state for each group, its attempts and its outcome."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_mqueue import Subscription, pause, publish, redrive, subscribe
from django_mqueue.admin.messages import timeline
from django_mqueue.inspect import remove
from django_mqueue.models import DeliveryState, Message, Offset
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.subscribers import QUICK, poll_until

from .looking import html_of, shown, text
from .operating import staff, staff_client, url_of
from .rows import ODD_KEYS, delivery, message

pytestmark = pytest.mark.django_db
with_workers = pytest.mark.django_db(transaction=True)
client = staff_client("view_message")


def page(offset: int) -> str:
    return url_of("message_change", offset)


def test_who_paused_the_group_is_for_users_who_may_see_actions(client: Client, admin_client: Client) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish(TOPIC, 1).offset
    pause(TOPIC, GROUP, by="boss", why="fraud case 7")
    assert "The group has been paused since" in text(html_of(client, page(offset)))
    assert "fraud case 7" not in html_of(client, page(offset))
    assert "by boss: fraud case 7." in text(html_of(admin_client, page(offset)))


def given_up() -> None:
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        (one,) = poll_until(subscription, 1)
        one.reject("ValueError: no")


def stands(client: Client, offset: int) -> dict[str, list[str]]:
    """Return the cells of each group's row, by the group's name."""
    rows = re.findall(r'<tr class="mqueue-stand">(.*?)</tr>', html_of(client, page(offset)), re.S)
    cells = [
        [" ".join(text(cell).split()) for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.S)]
        for row in rows
    ]
    return {row[0]: row[1:] for row in cells}


@with_workers
def test_where_it_is_now(client: Client) -> None:
    """The page shows each state of a group, and ``pending`` for a group that has not started."""
    offsets = one_of_each()
    for name, status, words in (
        ("pending", "pending", "Not delivered yet."),
        (
            "in_flight",
            "in flight",
            "A handler has it. It is delivered again if not acknowledged by 2",
        ),
        ("waiting", "for retry", "Retry at 2"),
        ("done", "done", "Since 2"),
        ("dead", "dead", "Since 2"),
    ):
        rows = stands(client, offsets[name])
        assert rows[GROUP][0] == status
        assert rows[GROUP][1].startswith(words)
        assert rows["stock"][0] == "pending"
        assert rows["stock"][1] == "Not delivered yet. No subscriber of the group is alive."
        if name != "pending":
            assert rows[GROUP][2] == "worker-1"
            assert rows[GROUP][4] == "1"
    html = html_of(client, page(offsets["scheduled"]))
    assert "It is scheduled. A worker moves it into the topic when it is due: " in text(html)
    assert "No group is registered" not in html


@with_workers
def test_attempts_with_their_errors(client: Client) -> None:
    offsets = one_of_each()
    html = html_of(client, page(offsets["waiting"]))
    assert re.search(r"group billing, attempt 1, by worker-1:\s+ConnectionError: not now", text(html))
    letter = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    dead = html_of(client, page(offsets["dead"]))
    assert f'href="{page(letter)}"' in dead
    assert "ValueError: never\n\nTraceback" in dead
    page_of_letter = html_of(client, page(letter))
    assert "ValueError: never\n\nTraceback" in page_of_letter
    assert f'href="{page(offsets["dead"])}"' in page_of_letter
    assert "It is a dead letter of group" in text(page_of_letter)


@with_workers
def test_a_letter_leads_to_where_it_is_sent_back(client: Client) -> None:
    """Users with the permission to view dead letters get a link to the dead letter. Others get none."""
    offsets = one_of_each()
    letter = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    keeper = staff("view_message", "view_deadletter", name="keeper")
    for offset in (offsets["dead"], letter):
        (url,) = set(re.findall(rf'href="({url_of("deadletter")}[^"]+)"', html_of(keeper, page(offset))))
        assert "ValueError: never" in html_of(keeper, url)
        assert url_of("deadletter") not in html_of(client, page(offset)).replace(
            url_of("deadletter_changelist"), ""
        )


@with_workers
def test_a_letter_that_was_sent_back(client: Client) -> None:
    """The original and the redriven copy link to each other. The page says if a linked message was deleted."""
    first = publish(TOPIC, 1, key="k", id="dead").offset
    subscribe(TOPIC, "stock")
    given_up()
    assert redrive(TOPIC, group=GROUP) == 1
    copy = Message.objects.get(topic=TOPIC, original_id="dead").offset
    original = html_of(client, page(first))
    assert "Redriven to billing" in text(original)
    assert stands(client, first)[GROUP][1].startswith(
        "It became a dead letter, and was redriven or redelivered. Since 2"
    )
    assert f'href="{page(copy)}"' in original
    back = html_of(client, page(copy))
    assert f'href="{page(first)}"' in back
    fields = shown(client, page(copy))
    assert (fields["message_id"], fields["for_group"]) == ("dead", GROUP)
    assert stands(client, copy)["stock"][1] == "It is not for this group."
    given_up()
    Message.objects.filter(offset=copy).delete()
    letter = Message.objects.get(topic=f"{TOPIC}_dlq").offset
    assert f"{copy} in {TOPIC}: deleted" in text(html_of(client, page(letter)))


@with_workers
def test_a_message_that_waits_long_for_its_retry(client: Client) -> None:
    """The message is acknowledged in the log, and scheduled for its retry. Both pages say so and link to each other."""
    offset = publish(TOPIC, 1, key="k", id="later").offset
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        (one,) = poll_until(subscription, 1)
        one.nack(delay=7200, error="OSError: closed")
    aside = Message.objects.get(topic=f"{TOPIC}_scheduled").offset
    row = stands(client, offset)[GROUP]
    assert row[0] == "for retry"
    assert row[1].startswith("Its retry is parked outside the log until it is due.")
    assert f'href="{page(aside)}"' in html_of(client, page(offset))
    html = html_of(client, page(aside))
    assert "It is scheduled for a retry, after 1 attempt." in text(html)
    assert f'href="{page(offset)}"' in html
    assert "OSError: closed" in html


@with_workers
def test_what_is_no_longer_on_record(client: Client) -> None:
    offset = publish(TOPIC, 1, key="k").offset
    subscribe(TOPIC, GROUP)
    with (
        override_settings(MQUEUE={**QUICK, "RETENTION": 3600}),
        Subscription(TOPIC, GROUP, name="w") as subscription,
    ):
        poll_until(subscription, 1)[0].ack()
        assert stands(client, offset)[GROUP][1].startswith("Since")
    subscribe(TOPIC, "late")
    Offset.objects.filter(consumer_group="late", partition_key="").update(offset_acked=offset)
    assert stands(client, offset)["late"][:2] == [
        "before the group's start",
        "The group's start position is after it.",
    ]
    DeliveryState.objects.all().delete()
    Offset.objects.filter(consumer_group=GROUP, partition_key="k").delete()
    Offset.objects.create(
        consumer_group=GROUP, topic=TOPIC, partition_key="k", offset_acked=offset, updated_at=1
    )
    assert stands(client, offset)[GROUP][:2] == [
        "not recorded",
        "The group's position is after it, but no delivery is recorded.",
    ]


def test_for_a_group_that_is_not_there(client: Client) -> None:
    offset = message(consumer_group="gone").offset
    assert "No group is registered for the topic" in text(html_of(client, page(offset)))
    subscribe("orders", GROUP)
    html = text(html_of(client, page(offset)))
    assert "It is only for group gone, which is not registered." in html


def test_for_a_group_that_the_page_does_not_list(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "GROUPS", 1)
    subscribe("orders", "a")
    subscribe("orders", GROUP)
    html = html_of(client, page(message(consumer_group=GROUP).offset))
    assert "There are more groups." in html
    assert "not registered" not in html


@with_workers
def test_a_page_refreshes_if_it_does_not_list_all_groups(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is not listed may not be done with the message."""
    monkeypatch.setattr(timeline, "GROUPS", 1)
    response = client.get(f"{page(one_of_each()['done'])}?fragment=1")
    assert "There are more groups." in text(response.content.decode())
    assert response.headers["X-MQueue-Fragment"] == "message_change"


@with_workers
def test_odd_names(client: Client) -> None:
    for odd in ODD_KEYS:
        subscribe(odd[:100], odd[:128])
        offset = publish(odd[:100], 1, key=odd, id=odd).offset
        with Subscription(odd[:100], odd[:128], name="w<b>") as subscription:
            poll_until(subscription, 1)[0].reject(f"ValueError: {odd} <script>")
        html = html_of(client, page(offset))
        assert "<b>bold" not in html
        assert "<script>&" not in html.replace("<script src", "")
        (row,) = stands(client, offset).values()
        assert row[0] == "dead"
        letter = Message.objects.get(topic=f"{odd[:100]}_dlq").offset
        assert f'href="{page(offset)}"' in html_of(client, page(letter))


def test_a_hundred_groups_cost_no_more_than_one(client: Client) -> None:
    """The page of a message with hundreds of groups takes as many statements as with one group.

    Its HTML stays below one million characters.
    """

    def cost(offset: int) -> tuple[int, int]:
        html_of(client, page(offset))
        with CaptureQueriesContext(connection) as captured:
            html = html_of(client, page(offset))
        return len(captured), len(html)

    one = message(topic="small").offset
    subscribe("small", GROUP)
    delivery(topic="small", message_offset=one)
    many = message(topic="large").offset
    error = {"at": 1, "attempt": 1, "by": "w", "error": "ValueError: no\n\n" + "x" * 4_000}
    for number in range(210):
        name = f"group-{number:03d}"
        if number < 5:
            subscribe("large", name)
        delivery(
            consumer_group=name,
            topic="large",
            message_offset=many,
            acked=number % 2,
            errors=[error] * 10,
            failure_count=9,
        )
    Offset.objects.bulk_create(
        Offset(consumer_group=f"group-{n:03d}", topic="large", partition_key="", updated_at=1)
        for n in range(5, 210)
    )
    few, _ = cost(one)
    lots, size = cost(many)
    assert lots <= few + 1, "the states differ: one of them needs a statement of its own"
    assert size < 1_000_000
    assert len(stands(client, many)) == 200
    assert "There are more groups." in html_of(client, page(many))


@with_workers
def test_links_need_their_rights(client: Client) -> None:
    offset = one_of_each()["pending"]
    html = html_of(client, page(offset))
    for name in ("publish_message", "hurry_message", "group", "topic"):
        assert url_of(name) not in html
    html = html_of(
        staff(
            "view_message", "publish_message", "hurry_message", "view_topic", "view_consumergroup", name="all"
        ),
        page(offset),
    )
    for name in ("publish_message", "hurry_message", "group", "topic"):
        assert url_of(name) in html
    assert staff("publish_message", name="other").get(page(offset)).status_code == 403


@pytest.mark.parametrize("word", ["0", "-1", "\uff11", "1e3", "9" * 30, "%00", "_5F"])
def test_a_message_that_is_not_there(client: Client, word: str) -> None:
    assert client.get(url_of("message_changelist") + f"{word}/change/").status_code in (302, 404)


@with_workers
def test_removed_by_hand(client: Client) -> None:
    offset = one_of_each()["pending"]
    assert remove(TOPIC, group=GROUP, status="pending") == 1
    html = text(html_of(client, page(offset)))
    assert "removed by hand" in html
    assert stands(client, offset)[GROUP][0] == "removed"


def test_nothing_of_it_is_a_form_or_an_unknown_value(client: Client) -> None:
    """The page shows rows of other programs, with any content of metadata, state and errors."""
    subscribe("orders", GROUP)
    odd: list[Any] = [["x"], "x", {"headers": "x", "retry": {"offset": "x", "errors": "x"}, "failed": 5}, 5]
    for metadata in odd:
        row = message(metadata=metadata)
        delivery(message_offset=row.offset, errors={"not": "a list"})
        assert shown(client, page(row.offset))["offset"] == str(row.offset)
