"""The page that delivers one message now, before others of its key."""

from __future__ import annotations

import pytest
from django.test import Client

from django_mqueue import Subscription, publish, publish_many, subscribe
from django_mqueue.inspect import messages
from django_mqueue.models import Message
from django_mqueue.spark.database import following
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each, published
from tests.support.processes import database_ms
from tests.support.subscribers import poll_until

from .looking import html_of, text
from .operating import confirm, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

URL = "hurry_message"
client = staff_client("view_message", "hurry_message")


def test_what_is_pending_comes_first(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    offsets = published("a", "b", "c")
    response = confirm(client, URL, {"topic": TOPIC, "group": GROUP, "offset": offsets[2]})
    result = (
        f"Message {offsets[2]} of topic {TOPIC} is due now, as the next message of its key for group {GROUP}."
    )
    assert told(response) == [result]
    assert "It is due now, as the next message of its key." in text(response.content.decode())
    assert written_down() == [("operator", f"{TOPIC}@{offsets[2]}", result)]
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        assert poll_until(subscription, 1, max_messages=1)[0].payload == "c"


def test_a_group_that_reads_the_log_gets_no_deliveries_to_hurry(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    following.follow(TOPIC, "archive", 0, 0, using="default")
    (offset,) = published("a")
    html = html_of(client, url_of("message_change", offset))
    assert f"{url_of(URL)}?topic={TOPIC}&amp;group={GROUP}&amp;" in html
    assert f"{url_of(URL)}?topic={TOPIC}&amp;group=archive&amp;" not in html


def test_only_this_one_is_sent(client: Client) -> None:
    """Another message with the same id, published for this group alone, is not moved."""
    subscribe(TOPIC, GROUP)
    first = publish(TOPIC, 1, key="k", id="same").offset
    publish(TOPIC, 2, key="k", id="same", group=GROUP)
    confirm(client, URL, {"topic": TOPIC, "group": GROUP, "offset": first})
    assert [one.payload for one in messages(TOPIC, group=GROUP, status="waiting")] == [1]


def test_what_waits_or_is_scheduled_is_due(client: Client) -> None:
    offsets = one_of_each()
    html = html_of(client, url_of("message_change", offsets["waiting"]))
    assert f"{url_of(URL)}?topic={TOPIC}&amp;group={GROUP}&amp;offset={offsets['waiting']}" in html
    confirm(client, URL, {"topic": TOPIC, "group": GROUP, "offset": offsets["waiting"]})
    (waiting,) = [one for one in messages(TOPIC, group=GROUP, status="waiting") if one.id == "waiting"]
    assert waiting.invisible_until is not None
    assert waiting.invisible_until.timestamp() < 1
    later = offsets["scheduled"]
    assert f"offset={later}" in html_of(client, url_of("message_change", later))
    response = confirm(client, URL, {"topic": TOPIC, "offset": later})
    assert told(response) == [f"Message {later} of topic {TOPIC} is due now."]
    assert Message.objects.get(offset=later).available_at <= database_ms()


@pytest.mark.parametrize("name", ["done", "dead", "in_flight"])
def test_what_does_not_wait_is_refused(client: Client, name: str) -> None:
    offset = one_of_each()[name]
    asked = {"topic": TOPIC, "group": GROUP, "offset": offset}
    for response in (
        client.post(url_of(URL), asked),
        client.post(url_of(URL), {**asked, "confirmed": "yes"}),
    ):
        assert response.status_code == 409
        assert "The message no longer waits" in response.content.decode()
    others: list[dict[str, object]] = [
        {"topic": "other"},
        {"group": "nobody"},
        {"offset": 10**9},
        {"group": ""},
    ]
    for odd in others:
        assert client.post(url_of(URL), {**asked, **odd}).status_code == 409
    for bad in ({**asked, "offset": "x"}, {**asked, "offset": 10**30}, {**asked, "topic": ""}, {}):
        assert client.post(url_of(URL), bad).status_code in (200, 400)


def test_it_needs_its_right_and_a_confirmation(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish_many(TOPIC, [1])[0].offset
    asked = {"topic": TOPIC, "group": GROUP, "offset": str(offset)}
    other = staff("view_message", "publish_message", name="other")
    for response in (other.get(url_of(URL), asked), other.post(url_of(URL), {**asked, "confirmed": "yes"})):
        assert response.status_code == 403
    assert client.get(url_of(URL), asked).status_code == 200
    assert client.post(url_of(URL), asked).status_code == 200
    assert [one.status for one in messages(TOPIC, group=GROUP)] == ["pending"]
    assert written_down() == []
