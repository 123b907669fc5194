"""The pages that cancel a scheduled message, or give it another time."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client, override_settings

from django_mqueue import Subscription, cancel, publish, scheduled, subscribe
from django_mqueue.inspect import messages
from django_mqueue.models import Message
from django_mqueue.service.actions import recent
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.support.subscribers import QUICK, poll_until

from .looking import html_of, text
from .operating import confirm, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

AT = dt.datetime(2100, 1, 1, 12, tzinfo=dt.UTC)
LATER = "2101-02-03T04:05:06"
client = staff_client("view_message", "cancel_message", "reschedule_message")


@pytest.fixture(params=["keyed", "spread", "urgent", "for_one"])
def offset(request: pytest.FixtureRequest) -> int:
    """The offset of a scheduled message, of each kind of partition and target. Another message is also scheduled."""
    subscribe(TOPIC, GROUP)
    publish(TOPIC, "beside", key="beside", at=AT)
    ways = {
        "keyed": {"key": "k"},
        "spread": {},
        "urgent": {"priority": 5},
        "for_one": {"key": "k", "group": GROUP},
    }
    return publish(TOPIC, "x", at=AT, **ways[request.param]).offset  # type: ignore[arg-type]


def test_cancel(client: Client, offset: int) -> None:
    page = html_of(client, url_of("message_change", offset))
    assert f'href="{url_of("cancel_message")}?offset={offset}"' in page
    shown = html_of(client, f"{url_of('cancel_message')}?offset={offset}")
    assert f"Cancel message {offset} of topic {TOPIC}, which is due at 2100-01-01 12:00:00 UTC?" in text(
        shown
    )
    id = Message.objects.get(offset=offset).message_id
    response = confirm(client, "cancel_message", {"offset": offset})
    (said,) = told(response)
    assert said == f"Message {offset} of topic {TOPIC} (id {id}) is cancelled."
    assert [one.payload for one in scheduled(TOPIC)] == ["beside"]
    assert written_down() == [("operator", f"{TOPIC}@{offset}", said)]
    assert (recent(TOPIC)[0].action, recent(TOPIC)[0].by, recent(TOPIC)[0].details) == (
        "cancel", "operator", {"id": id},
    )  # fmt: skip
    assert client.post(url_of("cancel_message"), {"offset": offset}).status_code == 409


def test_reschedule(client: Client, offset: int) -> None:
    form = html_of(client, f"{url_of('reschedule_message')}?offset={offset}")
    assert 'value="2100-01-01T12:00:00"' in form
    shown = client.post(url_of("reschedule_message"), {"offset": offset, "at": LATER})
    assert (
        f"Deliver message {offset} of topic {TOPIC} at 2101-02-03 04:05:06 UTC instead of 2100-01-01 12:00:00 UTC?"
        in text(shown.content.decode())
    )
    response = confirm(client, "reschedule_message", {"offset": offset, "at": LATER})
    assert told(response) == [f"Message {offset} of topic {TOPIC} is now due at 2101-02-03 04:05:06 UTC."]
    assert response.redirect_chain[0][0] == url_of("message_change", offset)
    assert [one.at.year for one in scheduled(TOPIC)] == [2100, 2101]
    assert recent(TOPIC)[0].action == "reschedule"


@override_settings(TIME_ZONE="Europe/Berlin")
def test_the_time_is_in_the_projects_zone(client: Client) -> None:
    offset = publish(TOPIC, 1, at=AT).offset
    assert 'value="2100-01-01T13:00:00"' in html_of(client, f"{url_of('reschedule_message')}?offset={offset}")
    confirm(client, "reschedule_message", {"offset": offset, "at": LATER})
    assert [one.at for one in scheduled(TOPIC)] == [dt.datetime(2101, 2, 3, 3, 5, 6, tzinfo=dt.UTC)]


def test_a_time_in_the_past_is_due_at_once(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    offset = publish(TOPIC, 1, at=AT).offset
    shown = client.post(url_of("reschedule_message"), {"offset": offset, "at": "2001-01-01T00:00:00"})
    assert "This time is in the past" in shown.content.decode()
    with override_settings(MQUEUE=QUICK), Subscription(TOPIC, GROUP) as subscription:
        assert subscription.poll() == []
        confirm(client, "reschedule_message", {"offset": offset, "at": "2001-01-01T00:00:00"})
        assert poll_until(subscription, 1)[0].payload == 1


def test_a_parked_retry_can_be_cancelled(client: Client) -> None:
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 1)[0].nack(delay=86_400 * 30, error="KeyError: x")
    retry = Message.objects.get(topic=f"{TOPIC}_scheduled")
    shown = html_of(client, f"{url_of('cancel_message')}?offset={retry.offset}")
    assert f"Group {GROUP} will not receive the message again" in text(shown)
    confirm(client, "cancel_message", {"offset": retry.offset})
    assert [one.status for one in messages(TOPIC, group=GROUP)] == ["done"]


@pytest.mark.parametrize("page", ["cancel_message", "reschedule_message"])
def test_other_messages_are_refused(client: Client, page: str) -> None:
    offsets = one_of_each()
    for name, offset in {**offsets, "none": 10**9}.items():
        if name == "scheduled":
            continue
        for more in ({}, {"confirmed": "yes"}):
            response = client.post(url_of(page), {"offset": offset, "at": LATER, **more})
            assert response.status_code == 409, name
            assert "The message is no longer scheduled" in response.content.decode()
    for bad in ({}, {"offset": "x"}, {"offset": 10**30}, {"offset": offsets["scheduled"], "at": "x"}):
        if not (page == "cancel_message" and bad.get("at")):
            assert client.post(url_of(page), bad).status_code == 400


def test_a_message_that_is_cancelled_meanwhile(client: Client) -> None:
    id = publish(TOPIC, 1, key="k", at=AT)
    asked = {"offset": id.offset, "at": LATER, "confirmed": "yes"}
    assert cancel(TOPIC, id.id, key="k")
    for page in ("cancel_message", "reschedule_message"):
        assert client.post(url_of(page), asked).status_code == 409
    assert [one.action for one in recent(TOPIC)] == []
    assert [what.partition(":")[0] for _, _, what in written_down()] == ["Refused", "Refused"]


def test_each_needs_its_permission() -> None:
    offset = publish(TOPIC, 1, at=AT).offset
    for page, right, other in (
        ("cancel_message", "cancel_message", "reschedule_message"),
        ("reschedule_message", "reschedule_message", "cancel_message"),
    ):
        client = staff("view_message", right, name=page)
        asked = {"offset": offset, "at": LATER}
        assert client.get(url_of(page), {"offset": offset}).status_code == 200
        assert client.post(url_of(other), {**asked, "confirmed": "yes"}).status_code == 403
        html = html_of(client, url_of("message_change", offset))
        assert (url_of(page) in html, url_of(other) in html) == (True, False)
    assert [one.at for one in scheduled(TOPIC)] == [AT]
