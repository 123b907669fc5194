"""The pages that remove messages from a group, and that unsubscribe a group."""

from __future__ import annotations

import pytest
from django.test import Client

from django_mqueue import Subscription, inspect, publish, publish_many, scheduled, subscribe, unsubscribe
from django_mqueue.admin.groups import removing
from django_mqueue.service.actions import recent
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.subscribers import poll_until

from .looking import html_of, text
from .operating import confirm, hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

OF = {"topic": TOPIC, "group": GROUP}
REMOVE = "remove_messages"
client = staff_client("view_consumergroup", "remove_message", "unsubscribe_consumergroup")


def pending(group: str = GROUP) -> int:
    return len(inspect.messages(TOPIC, group=group, status="pending").messages)


def test_remove_by_key_and_kind(client: Client) -> None:
    for group in (GROUP, "other"):
        subscribe(TOPIC, group)
    for number in range(6):
        publish(TOPIC, number, key=f"k{number % 2}", kind="a" if number < 3 else "b")
    group = html_of(client, f"{url_of('group')}?topic={TOPIC}&group={GROUP}")
    assert url_of(REMOVE) in group
    form = html_of(client, f"{url_of(REMOVE)}?topic={TOPIC}&group={GROUP}")
    assert 'name="confirmed"' not in form
    for more, count in (
        ({"key": "k1"}, 3),
        ({"kind": "b"}, 3),
        ({"key": "k1", "kind": "b"}, 2),
        ({"status": "waiting"}, 0),
    ):
        shown = client.post(url_of(REMOVE), {**OF, "status": "all", **more})
        assert f"Remove {count} message" in text(shown.content.decode()), more
        assert ('type="submit" class="deletelink' in shown.content.decode()) == bool(count)
    response = confirm(client, REMOVE, {**OF, "status": "pending", "key": "k1", "kind": "b"})
    (said,) = told(response)
    assert said == f"2 messages of topic {TOPIC} were removed from group {GROUP}: Pending, key k1, kind b."
    assert (pending(), pending("other")) == (4, 6)
    assert written_down() == [("operator", f"{GROUP} on {TOPIC}", said)]
    assert (recent(TOPIC)[0].action, recent(TOPIC)[0].by) == ("remove", "operator")


def test_only_what_the_preview_has_seen(client: Client) -> None:
    """Messages that are published after the preview stay, and so do messages for other groups."""
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1, delay=3600)
    publish(TOPIC, 2, delay=3600, group=GROUP)
    publish_many(TOPIC, [1, 2, 3])
    shown = client.post(url_of(REMOVE), {**OF, "status": "all"}).content.decode()
    assert "Remove 4 messages" in text(shown)
    publish(TOPIC, "new")
    client.post(url_of(REMOVE), {**hidden(shown), "reason": "a test"})
    assert [one.payload for one in inspect.messages(TOPIC, group=GROUP, status="pending")] == ["new"]
    assert [one.payload for one in scheduled(TOPIC)] == [1]
    assert recent(TOPIC)[0].why == "a test"


def test_many_are_removed_in_steps(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "STEP", 2)
    monkeypatch.setattr(removing, "COUNT_MAX", 3)
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, range(5))
    shown = client.post(url_of(REMOVE), {**OF, "status": "all"}).content.decode()
    assert "Remove at least 3 messages" in text(shown)
    for done in (2, 4):
        shown = client.post(url_of(REMOVE), hidden(shown)).content.decode()
        assert f"{done} messages of topic {TOPIC} were removed from group {GROUP} so far" in text(shown)
    response = client.post(url_of(REMOVE), hidden(shown), follow=True)
    assert told(response)[0].startswith("5 messages of topic")
    assert pending() == 0
    assert len(written_down()) == 1


def test_a_refusal_after_a_step_reports_what_is_done(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "STEP", 2)
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, range(5))
    shown = client.post(url_of(REMOVE), {**OF, "status": "all"}).content.decode()
    shown = client.post(url_of(REMOVE), hidden(shown)).content.decode()
    unsubscribe(TOPIC, GROUP)
    refused = client.post(url_of(REMOVE), hidden(shown))
    assert refused.status_code == 409
    done = f"2 messages of topic {TOPIC} were removed from group {GROUP} so far"
    assert f"Finished steps remain: {done}" in text(refused.content.decode())
    assert "Nothing was changed." not in text(refused.content.decode())
    ((_, _, entry),) = written_down()
    assert entry.startswith(done)
    assert "Refused: " in entry


def test_in_flight_and_dead_stay(client: Client) -> None:
    offsets = one_of_each()
    confirm(client, REMOVE, {**OF, "status": "all"})
    left = {one.id: one.status for one in inspect.messages(TOPIC, group=GROUP)}
    assert left["in_flight"] == "in_flight"
    assert left["dead"] == "dead"
    assert left["waiting"] == "done"
    assert offsets["scheduled"]


def test_unsubscribe(client: Client) -> None:
    for group in (GROUP, "other"):
        subscribe(TOPIC, group)
    publish_many(TOPIC, range(3))
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        poll_until(subscription, 3)[0].reject("x")
        shown = text(html_of(client, f"{url_of('unsubscribe_group')}?topic={TOPIC}&group={GROUP}"))
    assert f"Unsubscribe group {GROUP} from topic {TOPIC}?" in shown
    for expected in (
        "1 subscriber of the group is alive",
        "not done with 2 messages",
        "Its dead letters stay: 1",
    ):
        assert expected in shown
    response = confirm(client, "unsubscribe_group", OF)
    assert told(response) == [f"Group {GROUP} is unsubscribed from topic {TOPIC}."]
    assert [one.group for one in inspect.groups(TOPIC)] == ["other"]
    assert (recent(TOPIC)[0].action, recent(TOPIC)[0].by) == ("unsubscribe", "operator")
    gone = text(html_of(client, f"{url_of('unsubscribe_group')}?topic={TOPIC}&group={GROUP}"))
    assert f"Group {GROUP} is not registered for topic {TOPIC}." in gone
    again = client.post(url_of("unsubscribe_group"), {**OF, "confirmed": "yes"}, follow=True)
    assert told(again) == [f"Group {GROUP} is not registered for topic {TOPIC}."]
    refused = client.post(url_of(REMOVE), {**OF, "status": "all"})
    assert refused.status_code == 409
    assert "subscribe(" not in refused.content.decode()


@pytest.mark.parametrize("page", [REMOVE, "unsubscribe_group"])
def test_each_needs_its_permission_and_a_confirmation(page: str) -> None:
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1)
    other = {REMOVE: "unsubscribe_consumergroup", "unsubscribe_group": "remove_message"}[page]
    stranger = staff("view_consumergroup", other, name="stranger")
    asked = {**OF, "status": "all"}
    assert stranger.get(url_of(page), asked).status_code == 403
    assert stranger.post(url_of(page), {**asked, "confirmed": "yes"}).status_code == 403
    assert url_of(page) not in html_of(stranger, f"{url_of('group')}?topic={TOPIC}&group={GROUP}")
    client = staff("remove_message", "unsubscribe_consumergroup")
    assert client.get(url_of(page), asked).status_code == 200
    assert client.post(url_of(page), asked).status_code == 200
    assert pending() == 1
    for bad in ({}, {"topic": TOPIC}, {**asked, "group": ""}, {**asked, "topic": " x"}):
        assert client.post(url_of(page), bad).status_code == 400
