"""The page that skips one message for one group."""

from __future__ import annotations

import pytest
from django.test import Client

from django_mqueue import Subscription, publish_many, subscribe
from django_mqueue.inspect import messages
from django_mqueue.service import actions
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each, published
from tests.support.subscribers import consume, poll_until

from .looking import html_of, text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

URL = "skip_message"
client = staff_client("view_message", "remove_message")


def test_a_pending_message_is_skipped_for_one_group(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    subscribe(TOPIC, "stock")
    _first, second, _third = published("a", "b", "c")
    html = html_of(client, url_of("message_change", second))
    assert f"{url_of(URL)}?topic={TOPIC}&amp;group={GROUP}&amp;offset={second}" in html
    asked = {"topic": TOPIC, "group": GROUP, "offset": second}
    plan = client.post(url_of(URL), asked).content.decode()
    assert f"Skip message {second} of topic {TOPIC} for group {GROUP}?" in text(plan)
    response = client.post(url_of(URL), {**hidden(plan), "reason": "a duplicate"}, follow=True)
    result = f"Message {second} of topic {TOPIC} is skipped for group {GROUP}."
    assert told(response) == [result]
    assert "It was removed by hand" in text(response.content.decode())
    assert written_down() == [("operator", f"{TOPIC}@{second}", f"{result} Reason: a duplicate")]
    action = actions.recent(TOPIC)[0]
    assert (action.action, action.group, action.by, action.why) == (
        "remove", GROUP, "operator", "a duplicate",
    )  # fmt: skip
    for group, payloads in ((GROUP, ["a", "c"]), ("stock", ["a", "b", "c"])):
        with Subscription(TOPIC, group) as subscription:
            assert sorted(one.payload for one in consume(subscription, len(payloads))) == payloads


def test_a_message_that_waits_for_its_retry(client: Client) -> None:
    offset = one_of_each()["waiting"]
    confirm(client, URL, {"topic": TOPIC, "group": GROUP, "offset": offset})
    (message,) = messages(TOPIC, group=GROUP, offset=offset)
    assert (message.status, message.outcome) == ("done", "removed")


@pytest.mark.parametrize("name", ["done", "dead", "in_flight", "scheduled"])
def test_other_messages_are_refused(client: Client, name: str) -> None:
    offset = one_of_each()[name]
    asked = {"topic": TOPIC, "group": GROUP, "offset": offset}
    for response in (
        client.post(url_of(URL), asked),
        client.post(url_of(URL), {**asked, "confirmed": "yes"}),
    ):
        assert response.status_code == 409
        assert "The message cannot be skipped" in response.content.decode()
    assert client.post(url_of(URL), {**asked, "group": "nobody"}).status_code == 409
    for bad in ({**asked, "offset": "x"}, {**asked, "topic": ""}, {}):
        assert client.post(url_of(URL), bad).status_code in (200, 400)


def test_a_message_that_is_claimed_after_the_plan_is_not_skipped(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    (offset,) = published("a")
    plan = client.post(url_of(URL), {"topic": TOPIC, "group": GROUP, "offset": offset}).content.decode()
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert client.post(url_of(URL), hidden(plan)).status_code == 409
        delivery.ack()


def test_it_needs_its_permission(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish_many(TOPIC, [1])[0].offset
    asked = {"topic": TOPIC, "group": GROUP, "offset": str(offset)}
    other = staff("view_message", "publish_message", "hurry_message", name="other")
    assert url_of(URL) not in html_of(other, url_of("message_change", offset))
    for response in (other.get(url_of(URL), asked), other.post(url_of(URL), {**asked, "confirmed": "yes"})):
        assert response.status_code == 403
    assert [one.status for one in messages(TOPIC, group=GROUP)] == ["pending"]
    assert written_down() == []
