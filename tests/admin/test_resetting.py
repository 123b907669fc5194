"""Resetting a group on the pages: the form, the preview, the reset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.utils import timezone

from django_mqueue import Subscription, pause, publish, reset, subscribe, unsubscribe
from django_mqueue.inspect import groups, preview_reset
from django_mqueue.models import Message
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, poll_until, settle

from .looking import text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
OF = {"topic": TOPIC, "group": GROUP}


kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


@pytest.fixture
def done() -> list[int]:
    """Publish six messages that the group acks and three more. Return all offsets."""
    offsets = []
    with Subscription(TOPIC, GROUP) as subscription:
        for number in range(6):
            offsets.append(publish(TOPIC, number, key=f"k{number % 2}").offset)
        consume(subscription, 6)
        settle(subscription)
    offsets += [publish(TOPIC, number, key="k0").offset for number in range(6, 9)]
    return offsets


client = staff_client("view_consumergroup", "reset_consumergroup")


def preview(client: Client, **asked: Any) -> str:
    response = client.post(url_of("reset_group"), {**OF, **asked})
    assert response.status_code == 200, text(response.content.decode())
    return " ".join(text(response.content.decode()).split())


def came() -> list[int]:
    with Subscription(TOPIC, GROUP) as subscription:
        seen = preview_reset(TOPIC, GROUP, "earliest")
        return sorted(one.payload for one in consume(subscription, seen.coming.count.value))


def start() -> int:
    return groups(TOPIC)[0].start


def test_asked_shown_and_done(done: list[int], client: Client) -> None:
    page = client.get(url_of("reset_group"), OF).content.decode()
    assert 'type="datetime-local"' in page
    assert "All messages that the log still holds" in page
    shown = preview(client, to="earliest")
    assert "Reset group billing on topic orders to the start?" in shown
    assert f"Delivered again (done before, or skipped) 6 {done[0]}," in shown
    assert "Skipped (not done, and will never be delivered) 0 - -" in shown
    assert f"Delivered in any case (not done yet) 3 {done[6]}," in shown
    assert start() == 0
    assert written_down() == []
    response = confirm(client, "reset_group", {**OF, "to": "earliest"})
    assert told(response) == ["Group billing on topic orders now starts after offset 0 (earliest)."]
    assert response.redirect_chain[0][0] == f"{url_of('group')}?topic=orders&group=billing"
    assert written_down() == [
        (
            "operator",
            "billing on orders",
            "Group billing on topic orders now starts after offset 0 (earliest).",
        )
    ]
    assert came() == list(range(9))


def test_to_an_offset(done: list[int], client: Client) -> None:
    shown = preview(client, to="offset", offset=str(done[7]))
    assert f"Reset group billing on topic orders to offset {done[7]}?" in shown
    assert "1 message that the group is not done with will never be delivered to it." in shown
    confirm(client, "reset_group", {**OF, "to": "offset", "offset": str(done[7])})
    assert came() == [7, 8]


def test_to_the_end(done: list[int], client: Client) -> None:
    shown = preview(client, to="latest")
    assert "3 messages that the group is not done with will never be delivered to it." in shown
    confirm(client, "reset_group", {**OF, "to": "latest"})
    publish(TOPIC, 9)
    assert came() == [9]


def test_the_end_is_that_of_the_moment_of_the_button(done: list[int], client: Client) -> None:
    page = client.post(url_of("reset_group"), {**OF, "to": "latest"}).content.decode()
    publish(TOPIC, 9)
    client.post(url_of("reset_group"), hidden(page))
    publish(TOPIC, 10)
    assert came() == [10]


@override_settings(TIME_ZONE="Asia/Kathmandu", USE_TZ=True)
def test_a_time_is_of_the_current_time_zone(done: list[int], client: Client) -> None:
    Message.objects.filter(offset__lt=done[4]).update(published_at=1_577_836_800_000)  # 2020-01-01 00:00 UTC
    timezone.activate("Asia/Kathmandu")
    try:
        assert "In the time zone Asia/Kathmandu" in client.get(url_of("reset_group"), OF).content.decode()
        early = preview(client, to="time", at="2020-01-01T05:45:00")
        assert "(done before, or skipped) 6 " in early
        late = preview(client, to="time", at="2020-01-01T05:45:01")
        assert "(done before, or skipped) 2 " in late
        assert "to 2020-01-01 05:45:01 +0545" in late
        (said,) = told(confirm(client, "reset_group", {**OF, "to": "time", "at": "2020-01-01T05:45:01"}))
        assert said.endswith(f"now starts after offset {done[3]} (time 2020-01-01 05:45:01 +0545).")
    finally:
        timezone.deactivate()
    assert start() == done[3]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"to": "time"}, "This needs a time."),
        ({"to": "time", "at": "yesterday"}, "Enter a valid date/time."),
        ({"to": "offset"}, "This needs an offset."),
        ({"to": "offset", "offset": "-1"}, "greater than or equal to 0"),
        ({"to": "offset", "offset": "9" * 25}, "less than or equal to"),
        ({"to": "elsewhere"}, "Select a valid choice."),
    ],
)
def test_what_no_place_is(done: list[int], client: Client, asked: dict[str, str], problem: str) -> None:
    for more in ({}, {"confirmed": "yes"}):
        response = client.post(url_of("reset_group"), {**OF, **asked, **more})
        assert response.status_code == 400
        assert problem in response.content.decode()
    assert written_down() == []


def test_an_offset_beyond_the_end_is_pointed_out(done: list[int], client: Client) -> None:
    shown = preview(client, to="offset", offset="99999999")
    assert f"Reset group billing on topic orders to the end (as of now, after offset {done[-1]})?" in shown
    assert (
        f"Offset 99999999 is beyond the end of the log, whose last message has offset {done[-1]}. The group gets "
        "every message that is published from now on, also below offset 99999999."
    ) in shown
    assert "3 messages that the group is not done with will never be delivered to it." in shown
    assert "beyond the end" not in preview(client, to="offset", offset=str(done[-1]))
    (said,) = told(confirm(client, "reset_group", {**OF, "to": "offset", "offset": "99999999"}))
    assert said.endswith(f"now starts after offset {done[-1]} (offset 99999999).")
    publish(TOPIC, 9)
    assert came() == [9]


def test_an_offset_in_an_empty_log_is_pointed_out(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    shown = preview(client, to="offset", offset="99999999")
    assert "Offset 99999999 is beyond the end of the log, which is empty." in shown


def test_a_time_after_the_last_message_is_pointed_out(done: list[int], client: Client) -> None:
    later = timezone.localtime(timezone.now() + timedelta(days=1))
    shown = preview(client, to="time", at=f"{later:%Y-%m-%dT%H:%M:%S}")
    assert (
        f"No message was published at {later:%Y-%m-%d %H:%M:%S %Z} or later. The group gets every message that is "
        "published from now on, also before that time."
    ) in shown
    assert "or later. The group" not in preview(client, to="time", at="2020-01-01T00:00:00")


@pytest.mark.usefixtures("done")
def test_a_place_has_a_before_and_an_after(client: Client) -> None:
    """No page of a reset uses the word "behind", which can mean late or after."""
    asked = text(client.get(url_of("reset_group"), OF).content.decode())
    with Subscription(TOPIC, GROUP, "worker-1") as subscription:
        deliveries = poll_until(subscription, 3)
        deliveries[0].nack(delay=3600)
        shown = preview(client, to="earliest")
    assert "Messages after the new position that are still in the log" in asked
    assert "messages after the new position are delivered again" in shown
    assert "Messages after the new position are delivered at once" in shown
    assert "behind" not in (asked + shown).lower()


def test_while_its_subscribers_run_it_needs_a_mark(done: list[int], client: Client) -> None:
    with Subscription(TOPIC, GROUP, "worker-1") as subscription:
        in_hand = poll_until(subscription, 3)
        page = client.post(url_of("reset_group"), {**OF, "to": "earliest"}).content.decode()
        assert "The group has running subscribers: worker-1." in text(page)
        assert "The group has 3 messages in flight." in text(page)
        assert 'type="checkbox" name="force"' in page
        response: Any = client.post(url_of("reset_group"), hidden(page))
        assert response.status_code == 409
        assert "The group has running subscribers: worker-1. Stop them first, or tick" in text(
            response.content.decode()
        )
        assert in_hand[0].ack()
        response = client.post(url_of("reset_group"), {**hidden(page), "force": "on"}, follow=True)
        assert told(response) == ["Group billing on topic orders now starts after offset 0 (earliest)."]
    assert [what.partition(":")[0] for _, _, what in written_down()] == [
        "Refused", "Group billing on topic orders now starts after offset 0 (earliest).",
    ]  # fmt: skip
    assert came() == list(range(9))


def test_a_paused_group_stays_paused(done: list[int], client: Client) -> None:
    pause(TOPIC, GROUP)
    assert "The group is paused, and stays paused." in preview(client, to="earliest")
    confirm(client, "reset_group", {**OF, "to": "earliest"})
    assert [one.paused for one in groups(TOPIC)] == [True]


@pytest.mark.parametrize("how", ["moved", "registered anew"])
def test_what_was_shown_of_another_life_is_not_done(done: list[int], client: Client, how: str) -> None:
    """The group is moved or registered again between preview and confirmation. The new position stays."""
    page = client.post(url_of("reset_group"), {**OF, "to": "earliest"}).content.decode()
    if how == "moved":
        reset(TOPIC, GROUP, done[5])
    else:
        unsubscribe(TOPIC, GROUP)
        subscribe(TOPIC, GROUP, done[5])
    before = start()
    response = client.post(url_of("reset_group"), hidden(page))
    assert response.status_code == 409
    assert "reset or registered again meanwhile" in text(response.content.decode())
    assert start() == before == done[4]


def test_a_group_that_is_not_there(client: Client) -> None:
    for more in ({}, {"confirmed": "yes"}):
        response = client.post(url_of("reset_group"), {**OF, "to": "latest", **more})
        assert response.status_code == 409
        assert "Nothing was changed." in response.content.decode()


def test_it_needs_its_right(done: list[int]) -> None:
    others = staff("view_consumergroup", "pause_consumergroup", "release_partitionlease", name="other")
    for response in (
        others.get(url_of("reset_group"), OF),
        others.post(url_of("reset_group"), {**OF, "to": "latest"}),
        others.post(url_of("reset_group"), {**OF, "to": "latest", "confirmed": "yes"}),
    ):
        assert response.status_code == 403
    assert start() == 0
    assert url_of("reset_group") not in others.get(url_of("group"), OF).content.decode()
    client = staff("view_consumergroup", "reset_consumergroup")
    assert url_of("reset_group") in client.get(url_of("group"), OF).content.decode()


def test_hostile_names() -> None:
    topic, group = 'a/b?c#d%2F"<i>', "it's <script>alert(1)</script>"
    subscribe(topic, group)
    publish(topic, 1)
    client = staff("view_consumergroup", "reset_consumergroup")
    with Subscription(topic, group, "<b>worker</b>"):
        page = client.post(url_of("reset_group"), {"topic": topic, "group": group, "to": "latest"})
        html = page.content.decode()
        assert "<script>alert" not in html
        assert "<b>worker" not in html
        assert "&lt;b&gt;worker" in html
    html = confirm(client, "reset_group", {"topic": topic, "group": group, "to": "latest"}).content.decode()
    assert "<script>alert" not in html


def test_the_times_of_the_preview_are_those_of_the_messages(done: list[int], client: Client) -> None:
    now = datetime.now(UTC)
    seen = preview_reset(TOPIC, GROUP, "earliest")
    assert seen.replayed.first_published_at is not None
    assert abs(seen.replayed.first_published_at - now) < timedelta(minutes=1)


def test_back_leads_to_the_page_of_the_group(client: Client) -> None:
    """Also while the form is not complete, and after a value was refused."""
    subscribe(TOPIC, GROUP)
    link = f'href="{url_of("group")}?topic={TOPIC}&amp;group={GROUP}"'
    for response in (
        client.get(url_of("reset_group"), OF),
        client.post(url_of("reset_group"), {**OF, "to": "offset", "offset": "-5"}),
    ):
        assert link in response.content.decode()
