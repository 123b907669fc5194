"""The outcomes of done messages for their group. Messages that no handler finished have outcomes of their own."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import F
from django.test import Client

from django_mqueue import Subscription, publish, purge, redrive, reset, subscribe
from django_mqueue.inspect import group_figures, latency, messages, rates, redeliver, remove, send_to_front
from django_mqueue.models import DeliveryState, Message
from django_mqueue.policy.outcomes import OUTCOMES
from tests.admin.looking import html_of, text
from tests.admin.operating import staff, url_of
from tests.support.fixtures import with_settings
from tests.support.running import Seen, registered, run
from tests.support.subscribers import QUICK, poll_until

from .scene import GROUP, TOPIC

pytestmark = pytest.mark.django_db(transaction=True)


kept = with_settings(MQUEUE={**QUICK, "RETENTION": 7 * 86_400})


def ended(topic: str = TOPIC, group: str = GROUP) -> list[tuple[str | None, str | None]]:
    """Return (status, outcome) of all messages in the log for the group, oldest first."""
    page = messages(topic, group=group, newest_first=False)
    return [(one.status, one.outcome) for one in page]


def badge(client: Client, offset: int, group: str = GROUP) -> tuple[str, str]:
    """Return (status, words) of a group's row on the admin page of a message."""
    html = html_of(client, url_of("message_change", offset))
    rows = re.findall(r'<tr class="mqueue-stand">(.*?)</tr>', html, re.S)
    cells = [
        [" ".join(text(one).split()) for one in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.S)]
        for row in rows
    ]
    (mine,) = [row for row in cells if row[0] == group]
    return mine[1], mine[2]


def test_what_a_filter_skips() -> None:
    """A skipped message is done without an attempt. Throughput and latency do not include it."""
    offsets = [publish("t", {"n": n}, key="k").offset for n in range(6)]
    seen = Seen()
    with registered("t", seen, filter=lambda message: message.payload["n"] % 3 == 0):
        run()
    assert sorted(message.payload["n"] for message in seen.messages) == [0, 3]
    assert ended("t", "g") == [("done", "handled" if n % 3 == 0 else "skipped") for n in range(6)]
    attempts = [one.attempts for one in messages("t", group="g", newest_first=False)]
    assert attempts == [1, 0, 0, 1, 0, 0]
    DeliveryState.objects.filter(message_offset__in=offsets[1::3]).update(acked_at=F("acked_at") - 1_000)
    found = rates([("t", "g")])["t", "g"]
    assert found.finished is not None
    assert found.skipped is not None
    assert (found.finished.total.value, found.skipped.total.value) == (2, 4)
    took = latency("t", "g").whole
    assert took.done is not None
    assert took.delivered is not None
    assert (took.done.of, took.delivered.of) == (2, 2)
    DeliveryState.objects.filter(handed=False).update(acked_at=F("acked_at") + 3_600_000)
    usual = group_figures([("t", "g")])["t", "g"].usual
    assert usual is not None
    assert usual < timedelta(minutes=1)
    client = staff("view_message", "view_deliverystate")
    assert badge(client, offsets[1], "g")[0] == "skipped"
    assert badge(client, offsets[0], "g")[0] == "done"
    page = text(html_of(client, url_of("message_changelist"), {"topic": "t", "group": "g"}))
    assert page.count("skipped") == 4
    assert text(html_of(client, url_of("deliverystate_changelist"))).count("skipped") == 4


def test_what_was_given_up() -> None:
    """Check the outcome with a dead letter, after its redrive, after its purge, and after a redelivery."""
    first, second = (publish(TOPIC, n, key=f"k{n}", id=f"id-{n}").offset for n in range(2))
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.reject("ValueError: no")
    assert ended() == [("dead", "dead_lettered")] * 2
    assert redrive(TOPIC, ids=["id-0"]) == 1
    assert purge(TOPIC, ids=["id-1"]) == 1
    assert ended()[:2] == [("done", "redriven"), ("done", "dead_lettered")]
    client = staff("view_message", "view_deliverystate")
    assert badge(client, first)[0] == "redriven"
    assert badge(client, first)[1].startswith("It became a dead letter, and was redriven or redelivered.")
    assert badge(client, second)[0] == "dead-lettered"
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        poll_until(subscription, 1)[0].ack()
    assert [outcome for _, outcome in ended()] == ["redriven", "dead_lettered", "handled"]
    assert redeliver(TOPIC, group=GROUP, id="id-1") == 1
    assert [outcome for _, outcome in ended()][:2] == ["redriven", "redriven"]


def test_an_attempt_that_failed_before_is_no_end() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        poll_until(subscription, 1)[0].nack(delay=0, error="ValueError: not yet")
        poll_until(subscription, 1)[0].ack()
    assert ended() == [("done", "handled")]


@pytest.mark.parametrize("verb", ["nack", "postpone"])
def test_what_waited_apart_from_the_log(verb: str) -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        (one,) = poll_until(subscription, 1)
        if verb == "nack":
            one.nack(delay=7_200, error="OSError: closed")
        else:
            one.postpone(7_200)
        assert ended() == [("done", "set_aside")]
        Message.objects.filter(topic=f"{TOPIC}_scheduled").update(available_at=1)
        poll_until(subscription, 1)[0].ack()
    assert ended() == [("done", "set_aside"), ("done", "handled")]


def test_what_lay_before_the_start_and_what_was_removed() -> None:
    early, late = (publish(TOPIC, n, key="k").offset for n in range(2))
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        poll_until(subscription, 2)
    reset(TOPIC, GROUP, late, force=True)
    assert ended() == [("done", "before_start"), ("pending", None)]
    assert remove(TOPIC, group=GROUP, offset=late) == 1
    assert [outcome for _, outcome in ended()] == ["before_start", "removed"]
    client = staff("view_message")
    assert badge(client, early) == ("before the group's start", "The group's start position is after it.")
    assert badge(client, late)[0] == "removed"
    DeliveryState.objects.all().delete()


def test_a_message_is_sent_to_the_front_and_then_removed() -> None:
    publish(TOPIC, 1, key="k")
    subscribe(TOPIC, GROUP)
    assert send_to_front(TOPIC, group=GROUP) == remove(TOPIC, group=GROUP) == 1
    assert ended() == [("done", "removed")]


def test_the_documentation_lists_each_outcome() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "inspect.md").read_text(
        encoding="utf-8"
    )
    table = page.partition("### Outcomes")[2].partition("## `counts`")[0]
    assert tuple(re.findall(r'^\| `"(\w+)"`', table, re.M)) == OUTCOMES
